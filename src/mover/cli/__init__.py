"""The commands `logstore move` and `logstore reassign`; the program itself is `logstore.cli`."""
