"""Compress and restore the payload of a batch, with libraries imported when first needed."""

from __future__ import annotations

import sys
from typing import Any

from logstore.errors import UnsupportedFormatError

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # Kafka's numbers
ZSTD_WINDOW_LOG, ZSTD_WINDOW_LOG_MAX = 23, 27
LZ4_MAGIC, LZ4_RATIO_MAX = b"\x04\x22\x4d\x18", 256
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


def decompressor(codec_id: int, size_bytes_max: int) -> Any:
    """Make an object that restores one frame: `decompress(data, max_length=)`, then `eof`.

    A zstd frame names the window that it takes in memory, up to 128 MiB in a few bytes. More than
    `size_bytes_max` is refused, but for the 8 MiB that levels up to 19 use for small payloads, too.
    """
    library = _library(codec_id)
    if CODEC_NAMES[codec_id] == "lz4":
        return library.LZ4FrameDecompressor()
    window_log = min(max((size_bytes_max - 1).bit_length(), ZSTD_WINDOW_LOG), ZSTD_WINDOW_LOG_MAX)
    parameter = library.DecompressionParameter.window_log_max
    return library.ZstdDecompressor(options={parameter: window_log})


def room_for(data: bytes | memoryview, size_bytes_max: int) -> int:
    """Say how much one frame may be restored to: lz4 takes so much memory before it looks at one.

    lz4 restores an octet to 255 at most. zstd takes only what it needs, so its frames get all.
    """
    is_lz4 = bytes(data[:4]) == LZ4_MAGIC
    return min(size_bytes_max, LZ4_RATIO_MAX * (len(data) + 1)) if is_lz4 else size_bytes_max


def decompress(codec_id: int, data: bytes | memoryview, size_bytes: int) -> bytes:
    """Restore a payload; raises ValueError when it is not what its header says.

    The size is checked before all of it is made, so damage cannot ask for memory without bound.
    """
    frame = decompressor(codec_id, size_bytes)
    try:
        restored = bytes(frame.decompress(bytes(data), max_length=room_for(data, size_bytes + 1)))
    except Exception as error:  # each library has its own class for "not a frame"
        raise ValueError(f"the payload does not decompress: {error}") from error
    if len(restored) != size_bytes or not (frame.eof or size_bytes == 0):
        raise ValueError(f"the payload decompresses to {len(restored)} bytes, not {size_bytes}")
    if frame.unused_data:
        raise ValueError("bytes are left behind the compressed payload")
    return restored
