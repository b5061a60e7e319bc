"""Start a store: identify its log dirs, list what is in them, and decide about each directory."""
