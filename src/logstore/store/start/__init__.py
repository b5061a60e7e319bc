"""Start a store: whose log dirs these are, what is in them, and what becomes of it."""
