"""Choose the sizes of followers' fetches, and read large answers in parts; no I/O."""
