"""Import the checksum function of Kafka's batches; if it is missing, say what to install."""

from __future__ import annotations

try:
    from crc32c import crc32c
except ImportError as error:
    raise ImportError(
        "Kafka's record batches need crc32c: pip install 'logstore[kafka]'", name="crc32c"
    ) from error

__all__ = ["crc32c"]
