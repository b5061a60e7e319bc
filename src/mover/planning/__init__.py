"""Plan moves: which replicas go where, and in what order."""
