"""Import the checksum of Kafka's batches; if it is missing, the error names the extra."""

from __future__ import annotations

try:
    from crc32c import crc32c
except ImportError as error:
    raise ImportError(
        "Kafka's record batches need crc32c: pip install 'logstore[kafka]'", name="crc32c"
    ) from error

__all__ = ["crc32c"]
