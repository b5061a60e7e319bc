"""Turn records into bytes and bytes into records; nothing in here does I/O."""

import sys

if sys.byteorder != "little":
    raise ImportError(
        "logstore lays columns out little-endian and maps them: it needs such a machine"
    )
