"""Keep a broker's session in the coordination store, and track how long it certainly lasts."""
