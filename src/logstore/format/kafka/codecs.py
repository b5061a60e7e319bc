"""Compress and decompress the records of Kafka's batches with gzip, snappy, lz4 or zstd.

A batch of Kafka does not store the uncompressed size of its records, so decompression stops at a
limit (KIP-98, KIP-110). Snappy has two forms: plain snappy, and the blocks of the xerial library,
which Java clients write.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from logstore.errors import UnsupportedFormatError
from logstore.format import compression
from logstore.format.compression import CODEC_IDS, CODEC_NAMES
from logstore.format.expansion import EXPANSION_BYTES_MAX, too_much

XERIAL_HEADER = struct.Struct(">8sii")
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024
# In snappy, three compressed bytes give at most 64 bytes.
SNAPPY_RATIO_MAX = 22
GZIP_WINDOW_BITS = 31


def _snappy() -> Any:
    try:
        from cramjam import snappy
    except ImportError as error:
        raise UnsupportedFormatError(
            path="",
            version="snappy",
            reason="the codec snappy needs a library: pip install 'logstore[kafka]'",
        ) from error
    except OSError as error:
        raise compression.cannot_load("the codec snappy", error) from error
    return snappy


def require(codec_id: int) -> None:
    """Raise UnsupportedFormatError if a codec cannot be used in this process."""
    if codec_id == CODEC_IDS["snappy"]:
        _snappy()
    elif codec_id != CODEC_IDS["gzip"]:
        compression.require(codec_id)


def compress(codec_id: int, data: bytes) -> bytes:
    """Compress the records of one batch as Kafka's own producers do."""
    if codec_id == CODEC_IDS["gzip"]:
        maker = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
        return maker.compress(data) + maker.flush()
    if codec_id == CODEC_IDS["snappy"]:
        raw = _snappy().compress_raw
        parts = [XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)]
        for start in range(0, len(data), XERIAL_BLOCK_BYTES):
            block = bytes(raw(data[start : start + XERIAL_BLOCK_BYTES]))
            parts += (struct.pack(">i", len(block)), block)
        return b"".join(parts)
    if codec_id == CODEC_IDS["lz4"]:
        import lz4.frame

        compression.require(codec_id)
        # Java's reader refuses a block that depends on the previous block.
        try:
            return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
        except RuntimeError as error:
            compression.refuse_shortage(error)
            raise
    return compression.compress(codec_id, data)


def decompress(codec_id: int, data: bytes, restored_bytes_max: int = EXPANSION_BYTES_MAX) -> bytes:
    """Decompress the records of one batch.

    Args:
        restored_bytes_max: the largest size of the decompressed records. During decompression, the
            memory in use may be up to twice this size for a short time.

    Raises:
        RecordExpansionError: the records are larger than `restored_bytes_max`.
        ValueError: the records are damaged.
        UnsupportedFormatError: the codec's library is not installed, or the codec is unknown.
    """
    if codec_id == CODEC_IDS["snappy"]:
        library = _snappy()
        try:
            return b"".join(_snappy_blocks(library, data, restored_bytes_max))
        except library_errors() as error:
            compression.refuse_shortage(error)
            raise ValueError(f"the records do not decompress: {error}") from error
    if codec_id not in CODEC_NAMES:
        reason = f"codec number {codec_id} of Kafka's batches is unknown"
        raise UnsupportedFormatError(path="", version=f"codec {codec_id}", reason=reason)
    if codec_id == CODEC_IDS["gzip"]:
        decompressor: Any = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
    else:
        decompressor = compression.decompressor(codec_id, restored_bytes_max)
    restored = b""
    try:
        if codec_id == CODEC_IDS["gzip"]:
            restored = decompressor.decompress(data, restored_bytes_max + 1)
        else:
            room = compression.room_for(data, restored_bytes_max + 1)
            restored = bytes(decompressor.decompress(data, max_length=room))
    # each library has its own error for data that is not in its format
    except Exception as error:
        compression.refuse_shortage(error)
        raise ValueError(f"the records do not decompress: {error}") from error
    _check_size(len(restored), restored_bytes_max)
    if not decompressor.eof:
        raise ValueError("the records do not decompress: the compressed data ends early")
    if decompressor.unused_data:
        raise ValueError("bytes are left after the compressed records")
    return restored


def size_in_frame(codec_id: int, data: bytes) -> int:
    """Return the uncompressed size that a frame claims, right or wrong; -1 if it claims none."""
    try:
        if codec_id == CODEC_IDS["snappy"]:
            return -1 if data[:8] == XERIAL_MAGIC else _snappy_size(_snappy(), data)
        return compression.size_in_frame(codec_id, data)
    except Exception:  # noqa: BLE001 - each library has its own; the decompression finds the fault
        return -1


def library_errors() -> tuple[type[Exception], ...]:
    """Return the errors that cramjam raises for bytes that are not snappy."""
    import cramjam

    return (cramjam.DecompressionError, struct.error)


def _snappy_blocks(library: Any, data: bytes, restored_bytes_max: int) -> Iterator[bytes]:
    """Decompress plain snappy, or each block of the xerial form.

    The size of a block is checked before memory is allocated for it.
    """
    if data[:8] != XERIAL_MAGIC:
        _check_size(_snappy_size(library, data), restored_bytes_max)
        yield bytes(library.decompress_raw(data))
        return
    position, total = XERIAL_HEADER.size, 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise ValueError("the records do not decompress: a snappy block ends after its data")
        block = data[position : position + size]
        total += _snappy_size(library, block)
        _check_size(total, restored_bytes_max)
        yield bytes(library.decompress_raw(block))
        position += size


def _snappy_size(library: Any, block: bytes) -> int:
    """Return the size that a block claims; raise ValueError if it cannot expand to that size."""
    size_bytes: int = library.decompress_raw_len(block)
    if size_bytes > SNAPPY_RATIO_MAX * len(block):
        raise ValueError(
            f"the records do not decompress: a block of {len(block)} bytes claims "
            f"{size_bytes} bytes"
        )
    return size_bytes


def _check_size(size_bytes: int, restored_bytes_max: int) -> None:
    if size_bytes > restored_bytes_max:
        raise too_much(size_bytes, restored_bytes_max)
