"""Start a store: identify its log dirs, list their contents, and decide about each directory."""
