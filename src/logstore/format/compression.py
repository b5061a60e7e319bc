"""Compress and restore the payload of a batch, with libraries imported when first needed."""

from __future__ import annotations

import sys
from typing import Any

from logstore.errors import UnsupportedFormatError

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # Kafka's numbers
CODEC_NAMES = {number: name for name, number in CODEC_IDS.items()}


def _library(codec_id: int) -> Any:
    """Import the library of a codec, or say which extra brings it."""
    name = CODEC_NAMES.get(codec_id, f"number {codec_id}")
    try:
        if name == "lz4":
            import lz4.frame

            return lz4.frame
        if name == "zstd":
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
            return zstd
    except ImportError as error:
        raise UnsupportedFormatError(
            path="",
            version=name,
            reason=f"the codec {name} needs a library: pip install 'logstore[compression]'",
        ) from error
    raise UnsupportedFormatError(
        path="", version=name, reason=f"columnar batches have no codec number {codec_id}"
    )


def require(codec_id: int) -> None:
    """Check that a codec can be used in this process; raises UnsupportedFormatError if not."""
    if codec_id:
        _library(codec_id)


def compress(codec_id: int, data: bytes) -> bytes:
    """Compress a payload into one frame."""
    return bytes(_library(codec_id).compress(data))


def decompressor(codec_id: int) -> Any:
    """Make an object that restores one frame: `decompress(data, max_length=)`, then `eof`."""
    library = _library(codec_id)
    is_lz4 = CODEC_NAMES[codec_id] == "lz4"
    return library.LZ4FrameDecompressor() if is_lz4 else library.ZstdDecompressor()


def decompress(codec_id: int, data: bytes | memoryview, size_bytes: int) -> bytes:
    """Restore a payload; raises ValueError when it is not what its header says.

    The size is checked before all of it is made, so damage cannot ask for memory without bound.
    """
    frame = decompressor(codec_id)
    try:
        restored = bytes(frame.decompress(bytes(data), max_length=size_bytes + 1))
    except Exception as error:  # each library has its own class for "not a frame"
        raise ValueError(f"the payload does not decompress: {error}") from error
    if len(restored) != size_bytes or not (frame.eof or size_bytes == 0):
        raise ValueError(f"the payload decompresses to {len(restored)} bytes, not {size_bytes}")
    return restored
