"""Start a store: identify its log dirs, list them, and decide about each replica directory."""
