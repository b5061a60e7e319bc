"""Keep a store in order while it runs: the thread of each log dir, its work, and the listeners."""
