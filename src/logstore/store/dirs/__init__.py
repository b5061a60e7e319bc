"""Watch and change the log dirs of a running store: they join, fail, hang, return, close."""
