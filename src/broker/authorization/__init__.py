"""Decide what each client may do, from ACL bindings. Nothing here does I/O."""
