"""Track a log's producers: which batches they sent last, and where their transactions begin."""
