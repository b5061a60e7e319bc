"""Encode records as bytes, and decode these bytes; nothing in this package does I/O."""

import sys

if sys.byteorder != "little":
    raise ImportError(
        "logstore stores columns little-endian and maps them: it needs a little-endian machine"
    )
