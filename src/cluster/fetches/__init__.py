"""Size the fetches of followers, and take large answers in parts; no I/O."""
