"""Compress and decompress the payload of a batch; each codec's library is imported at first use."""

from __future__ import annotations

import sys
from typing import Any

from logstore.errors import LogStoreError, UnsupportedFormatError

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # Kafka's numbers
ZSTD_WINDOW_LOG, ZSTD_WINDOW_LOG_MAX = 23, 27
LZ4_MAGIC, LZ4_RATIO_MAX = b"\x04\x22\x4d\x18", 256
CODEC_NAMES = {number: name for name, number in CODEC_IDS.items()}


# If zstd, lz4 or zlib cannot allocate memory, the error message contains one of these texts.
NO_MEMORY = (
    "not enough memory",
    "allocation_failed",
    "allocation failed",
    "out of memory",
    "unable to create",
)


def _library(codec_id: int) -> Any:
    """Import the library of a codec; if it is missing, the error names the extra to install."""
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
    except OSError as error:
        raise cannot_load(f"the codec {name}", error) from error
    raise UnsupportedFormatError(
        path="", version=name, reason=f"columnar batches have no codec number {codec_id}"
    )


def cannot_load(what: str, error: OSError) -> LogStoreError:
    """Create the error for an import that failed because descriptors or memory ran out."""
    reason = f"{what} cannot be loaded ({error}): descriptors or memory may have run out; try again"
    return LogStoreError(reason=reason, retriable=True)


def require(codec_id: int) -> None:
    """Raise UnsupportedFormatError if a codec cannot be used in this process."""
    if codec_id:
        _library(codec_id)


def compress(codec_id: int, data: bytes) -> bytes:
    """Compress a payload into one frame of the codec."""
    library = _library(codec_id)
    try:
        return bytes(library.compress(data))
    except Exception as error:
        refuse_shortage(error)
        raise


def refuse_shortage(error: Exception) -> None:
    """Raise MemoryError if a codec failed for lack of memory, and not because of damaged bytes."""
    if isinstance(error, MemoryError):
        raise error
    text = str(error).lower()
    if any(words in text for words in NO_MEMORY):
        raise MemoryError(str(error)) from error


def decompressor(codec_id: int, size_bytes_max: int) -> Any:
    """Create an object that decompresses one frame with `decompress(data, max_length=)`.

    After the call of `decompress`, the object's attribute `eof` shows whether the frame was
    complete.

    A zstd frame of a few bytes can ask for a window of up to 128 MiB of memory. A window larger
    than `size_bytes_max` is refused. But a window of 8 MiB is always allowed, because compression
    levels up to 19 use it even for small payloads.
    """
    library = _library(codec_id)
    if CODEC_NAMES[codec_id] == "lz4":
        return library.LZ4FrameDecompressor()
    window_log = min(max((size_bytes_max - 1).bit_length(), ZSTD_WINDOW_LOG), ZSTD_WINDOW_LOG_MAX)
    parameter = library.DecompressionParameter.window_log_max
    try:
        return library.ZstdDecompressor(options={parameter: window_log})
    except Exception as error:
        refuse_shortage(error)
        raise


def size_in_frame(codec_id: int, data: bytes) -> int:
    """Return the uncompressed size that a frame of lz4 or zstd claims; -1 if it claims none.

    Raises:
        Exception: the data is not a frame.
    """
    name = CODEC_NAMES.get(codec_id)
    if name == "zstd":
        size: int | None = _library(codec_id).get_frame_info(data).decompressed_size
        return -1 if size is None else size
    if name == "lz4":
        return int(_library(codec_id).get_frame_info(data)["content_size"]) or -1
    return -1


def room_for(data: bytes | memoryview, size_bytes_max: int) -> int:
    """Return the largest size that one decompressed frame is allowed to have.

    lz4 allocates memory for the whole result before it reads the frame. The largest ratio of lz4 is
    255. So for an lz4 frame, this function returns at most about 256 times the size of the frame.
    For a zstd frame, it returns the whole limit, because zstd allocates only what it needs.
    """
    is_lz4 = bytes(data[:4]) == LZ4_MAGIC
    return min(size_bytes_max, LZ4_RATIO_MAX * (len(data) + 1)) if is_lz4 else size_bytes_max


def decompress(codec_id: int, data: bytes | memoryview, size_bytes: int) -> bytes:
    """Decompress a payload; raise ValueError if the result does not have `size_bytes` bytes.

    Decompression stops at the expected size, so damaged data cannot take memory without limit.
    """
    frame = decompressor(codec_id, size_bytes)
    try:
        restored = bytes(frame.decompress(bytes(data), max_length=room_for(data, size_bytes + 1)))
    except Exception as error:  # each library has its own error for data that is not a frame
        refuse_shortage(error)
        raise ValueError(f"the payload does not decompress: {error}") from error
    if len(restored) != size_bytes or not (frame.eof or size_bytes == 0):
        raise ValueError(f"the payload decompresses to {len(restored)} bytes, not {size_bytes}")
    if frame.unused_data:
        raise ValueError("bytes are left after the compressed payload")
    return restored
