"""Operate a running store from another process, through its socket."""
