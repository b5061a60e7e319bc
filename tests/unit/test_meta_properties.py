"""An identity is read as valid, as damaged, or as that of another program."""

from __future__ import annotations

import pytest

from logstore.disk.documents.meta_properties import (
    Hint,
    MetaProperties,
    decode_meta,
    encode_meta,
    hint_of,
    new_id,
)
from logstore.errors import CorruptCheckpointError, LogDirIdentityError, UnsupportedFormatError

META = MetaProperties("a" * 32, 3, "b" * 32, 5, ("b" * 32, "c" * 32), False)
PATH = "/disk1/logs/meta.properties"

KAFKA = b"""#
#Tue Nov 03 12:00:00 UTC 2026
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
version=1
broker.id=0
directory.id=sLtFqnDHQd2-TnYJbKbmsg
"""


@pytest.mark.parametrize("is_forming", [True, False])
def test_an_identity_comes_back(is_forming: bool) -> None:
    """The written identity is read back."""
    meta = META._replace(is_forming=is_forming)
    assert decode_meta(encode_meta(meta), PATH) == meta


def test_every_damage_is_found_and_never_taken_for_kafka() -> None:
    """A cut, flipped or zeroed file is damaged, not foreign and not another identity."""
    data = encode_meta(META)
    damaged = [data[:size] for size in range(len(data) - 1)] + [b"\0" * len(data), b"\n\n"]
    for position in range(len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 1
        damaged.append(bytes(flipped))
    for bad in damaged:
        with pytest.raises(CorruptCheckpointError):
            decode_meta(bad, PATH)


def test_the_identity_of_a_kafka_broker_is_foreign() -> None:
    """A Kafka log dir is refused by name, not called damaged."""
    with pytest.raises(LogDirIdentityError, match="Kafka") as raised:
        decode_meta(KAFKA, PATH)
    assert raised.value.path == "/disk1/logs"


def test_a_later_version_is_refused_as_one() -> None:
    """A valid file of a later version does not count as damage."""
    import xxhash

    lines = encode_meta(META).split(b"checksum=")[0].replace(b"version=1", b"version=2")
    data = lines + b"checksum=" + xxhash.xxh3_64_hexdigest(lines).encode() + b"\n"
    with pytest.raises(UnsupportedFormatError):
        decode_meta(data, PATH)


def test_what_is_left_of_a_damaged_identity_is_a_hint() -> None:
    """The ids that are still readable are returned."""
    data = encode_meta(META).replace(b"checksum", b"checksam")
    assert hint_of(data) == Hint("a" * 32, "b" * 32)
    assert hint_of(data[:40]) == Hint(None, None)
    assert hint_of(b"\xff\0=garbage") == Hint(None, None)


def test_ids_are_drawn_anew() -> None:
    """Two ids always differ, and have 32 hex digits."""
    assert new_id() != new_id()
    assert len(bytes.fromhex(new_id())) == 16
