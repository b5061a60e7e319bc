"""Follow the log dirs of a running store: join, fail, hang, slow down, return, close."""
