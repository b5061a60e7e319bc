"""Check the rights of clients, with a rule for each API."""
