"""Check what clients may do: a rule for each API, which is applied before and after its handler."""
