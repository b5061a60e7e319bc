"""Keep a store in order while it runs: the thread of each log dir, and its work."""
