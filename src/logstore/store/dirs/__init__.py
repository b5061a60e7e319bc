"""Change and watch the log dirs of a running store: join, fail, hang, return, close."""
