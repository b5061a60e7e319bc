"""Payloads come back from every codec, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import UnsupportedFormatError
from logstore.format.compression import compress, decompress, require

CODECS = st.sampled_from([3, 4])


@given(data=st.binary(max_size=300), codec_id=CODECS, repeats=st.integers(1, 50))
def test_payloads_come_back(data: bytes, codec_id: int, repeats: int) -> None:
    """But only with their own size, and whole."""
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
    """With the number that stands in the batch."""
    with pytest.raises(UnsupportedFormatError, match=str(codec_id)):
        require(codec_id)
    require(0)
