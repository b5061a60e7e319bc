"""The rules of who may do what: ACL bindings, and their lookup. Nothing here does I/O."""
