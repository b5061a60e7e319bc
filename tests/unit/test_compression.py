"""Every codec restores its payloads, and refuses all other bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import UnsupportedFormatError
from logstore.format.compression import compress, decompress, require
from logstore.format.kafka import codecs as kafka_codecs

CODECS = st.sampled_from([3, 4])


@given(data=st.binary(max_size=300), codec_id=CODECS, repeats=st.integers(1, 50))
def test_payloads_come_back(data: bytes, codec_id: int, repeats: int) -> None:
    """A payload is restored only as a whole, and only with its own size."""
    data *= repeats
    frame = compress(codec_id, data)
    assert decompress(codec_id, frame, len(data)) == data
    for size in {len(data) + 1, max(len(data) - 1, 0)} - {len(data)}:
        with pytest.raises(ValueError, match="decompress"):
            decompress(codec_id, frame, size)
    with pytest.raises(ValueError, match="decompress"):
        decompress(codec_id, frame[:-1] if data else b"x", len(data) or 1)


@pytest.mark.parametrize("codec_id", [1, 2, 5, 7])
def test_codecs_that_are_not_known_are_named(codec_id: int) -> None:
    """The error has the codec's number from the batch."""
    with pytest.raises(UnsupportedFormatError, match=str(codec_id)):
        require(codec_id)
    require(0)


def zstd_frame(window_log: int, data: bytes) -> bytes:
    """Make a frame of one raw block that asks its reader for a window of 2**window_log bytes."""
    block = (len(data) << 3 | 1).to_bytes(3, "little") + data
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + block


@pytest.mark.parametrize("window_log", [24, 27, 30])
def test_regression_a_few_bytes_ask_for_no_large_window(window_log: int) -> None:
    """A zstd frame says how much memory it needs: more than the limit is refused."""
    assert decompress(4, zstd_frame(23, b"small"), 5) == b"small"
    with pytest.raises(ValueError, match="decompress"):
        decompress(4, zstd_frame(window_log, b"small"), 5)
    if window_log <= 27:
        with pytest.raises(ValueError, match="too much memory"):
            kafka_codecs.decompress(4, zstd_frame(window_log, b"small"), 1 << 20)
        restored = kafka_codecs.decompress(4, zstd_frame(window_log, b"small"), 1 << window_log)
        assert restored == b"small"
