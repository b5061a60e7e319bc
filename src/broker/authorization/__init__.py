"""Decide by ACL bindings which client may do what. Nothing here does I/O."""
