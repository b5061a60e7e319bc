"""The codec agrees with Kafka's own classes and with kio, byte for byte and value for value."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import io
import json
import random
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.own_fields import FIRST_TAG
from broker.wire.schemas import names, schema_of
from support.wire_samples import VERSIONS, sample
from wire.write_golden import golden_sample

GOLDEN = json.loads(Path(__file__).with_name("kafka_messages.json").read_text(encoding="utf-8"))
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KIO_TYPES: dict[str, Any] = {"Request": EntityType.request, "Response": EntityType.response}
NOT_IN_KIO = {"ControlledShutdown", "LeaderAndIsr", "StopReplica", "UpdateMetadata"}


@pytest.mark.parametrize("name", names())
def test_kafka_encodes_the_same_bytes(name: str) -> None:
    """Two messages of each version, encoded by the classes in kafka-clients, are ours."""
    versions = range(*schema_of(name).versions)
    assert sorted(map(int, GOLDEN[name])) == list(versions)
    for version in versions:
        for seed, text in enumerate(GOLDEN[name][str(version)]):
            data = base64.b64decode(text)
            message = golden_sample(name, version, seed)
            assert codec.encode(message, version) == data
            assert codec.decode(name, version, data) == message


def kio_class(name: str, version: int) -> Any:
    """Give kio's class of a request or a response."""
    api, kind = next(
        (name.removesuffix(suffix), kind)
        for suffix, kind in KIO_TYPES.items()
        if name.endswith(suffix)
    )
    folder = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api)[1:]
    module = load_entity_module(folder, version, kind)
    return getattr(module, name)


def values_of(name: str, struct_name: str, version: int, entity: Any) -> Any:
    """Give what kio decoded as the message that this codec has for it.

    kio does not know the fields that this project adds, and the samples do not set them.
    """
    if entity is None:
        return None
    schema = schema_of(name)
    fields = [
        field
        for field in schema.structs[struct_name]
        if version in field.versions and field.tag < FIRST_TAG
    ]
    ours = {}
    for field, theirs in zip(fields, dataclasses.fields(entity), strict=True):
        value = getattr(entity, theirs.name)

        def one(value: Any, kind: str = field.type) -> Any:
            if kind in schema.structs:
                return values_of(name, kind, version, value)
            return plain(value, kind)

        is_many = field.is_array and value is not None
        ours[field.name] = tuple(map(one, value)) if is_many else one(value)
    return messages.classes_of(name)[struct_name](**ours)


def plain(value: Any, kind: str) -> Any:
    """Undo what kio makes of numbers and uuids."""
    if kind == "uuid":
        return bytes(16) if value is None else value.bytes
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return -1 if value is None and kind == "int64" else value


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in names()
        if name.endswith(tuple(KIO_TYPES)) and not name.startswith(tuple(NOT_IN_KIO))
    ],
)
def test_kio_decodes_and_encodes_the_same(name: str) -> None:
    """Made-up messages go to kio and come back, the same values, and then the same bytes."""
    for version in range(*schema_of(name).versions):
        kind = kio_class(name, version)
        read, write = entity_reader(kind), entity_writer(kind)
        for seed in range(3):
            message = sample(name, version, random.Random(seed))
            data = bytes(codec.encode(message, version))
            entity, size = read(data, 0)
            assert size == len(data)
            assert values_of(name, name, version, entity) == message
            assert written(write, entity) == data


def written(write: Any, entity: Any) -> bytes:
    """Encode with kio."""
    with io.BytesIO() as buffer:
        write(buffer, entity)
        return buffer.getvalue()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False), st.integers(0, 4))
def test_what_is_encoded_is_decoded(
    message_version: tuple[str, int], rng: random.Random, elements_max: int
) -> None:
    """A message of any version comes back as it was, from bytes of its own or amid others."""
    name, version = message_version
    message = sample(name, version, rng, elements_max)
    data = codec.encode(message, version)
    assert codec.decode(name, version, data) == message
    assert codec.decode(name, version, memoryview(b"x" + data)[1:]) == message


def test_arrays_may_be_lists_and_tags_have_defaults() -> None:
    """A list is written as a tuple is; a tagged array that is empty is not written at all."""
    kind = messages.ApiVersionsResponse
    listed = kind(api_keys=[kind.ApiVersion(0, 0, 13)], supported_features=[])
    assert codec.encode(listed, 3) == b"\0\0\2\0\0\0\0\0\r\0\0\0\0\0\0"
    assert codec.decode("ApiVersionsResponse", 3, codec.encode(listed, 3)).supported_features == ()


def test_fields_of_other_versions_are_left_out() -> None:
    """One response serves every version: what a version lacks is not written, nor an error."""
    kind = messages.MetadataResponse
    response = kind(cluster_id="c", controller_id=4, throttle_time_ms=9)
    assert codec.encode(response, 0) == bytes(8)
    assert codec.decode("MetadataResponse", 0, bytes(8)) == kind()
    assert codec.decode("MetadataResponse", 3, codec.encode(response, 3)) == response


def test_unknown_tags_are_skipped_but_never_out_of_order() -> None:
    """A later version of a client may send tags that this one does not know."""
    data = codec.encode(messages.ApiVersionsRequest("x", "1"), 3)
    assert data.endswith(b"\0")
    body = data[:-1]
    more = body + b"\2\5\1x\x81\1\2yz"
    assert codec.decode("ApiVersionsRequest", 3, more) == messages.ApiVersionsRequest("x", "1")
    for tags in (b"\2\5\1x\5\1x", b"\2\5\1x\4\1x", b"\1\5\2x", b"\3\5\1x", b"\1"):
        with pytest.raises(WireError):
            codec.decode("ApiVersionsRequest", 3, body + tags)


@pytest.mark.parametrize(
    ("name", "version", "data", "path", "reason"),
    [
        ("MetadataRequest", 4, b"\x7f\xff\xff\xff", "topics", "2147483647 elements are declared"),
        ("MetadataRequest", 4, b"\xff\xff\xff\xfe\0\0", "topics", "the length -2 is negative"),
        ("MetadataRequest", 4, b"\0\0\0\1\0\5abc", "topics[0].name", "5 bytes are declared"),
        ("MetadataRequest", 4, b"\0\0\0\1\0\1\xff\1", "topics[0].name", "not UTF-8"),
        ("MetadataRequest", 4, b"\0\0\0\1\xff\xff\1\1", "topics[0].name", "the value is null"),
        ("MetadataRequest", 4, b"\0\0\0\0\0\0", "", "1 bytes follow the end"),
        ("MetadataRequest", 4, b"\0\0", "topics", "the bytes end inside a field"),
        ("MetadataRequest", 12, b"\x80\x80\x80\x80\x80\1", "topics", "more than five bytes"),
        ("MetadataRequest", 12, b"\xff\xff\xff\xff\x0f", "topics", "the varint 4294967295"),
        ("FetchRequest", 15, bytes(21) + b"\1\1\1\1\1\x0e" + bytes(14), "tags", "has 13 bytes"),
        ("HeartbeatRequest", 4, b"\x81\x80\2" + bytes(2**15), "group_id", "more than 32767"),
        ("DescribeTopicPartitionsRequest", 0, b"\1\0\0\0\0\2\0", "cursor", "struct is null"),
    ],
)
def test_damage_is_named(name: str, version: int, data: bytes, path: str, reason: str) -> None:
    """An error says where in the bytes and in which field, and what is wrong there."""
    with pytest.raises(WireError) as caught:
        codec.decode(name, version, data)
    assert path in caught.value.path and reason in caught.value.reason, str(caught.value)
    assert 0 <= caught.value.position <= len(data)
    assert isinstance(caught.value, ValueError)


def test_a_value_that_does_not_fit_is_a_value_error() -> None:
    """What this process itself gets wrong is reported with the message's name."""
    kind = messages.MetadataResponse
    for wrong in (
        kind(controller_id=1 << 31),
        kind(cluster_id=7),
        kind(brokers=None),
        kind(topics=[kind.MetadataResponseBroker()]),
        kind(brokers=[kind.MetadataResponseBroker(host=None)]),
    ):
        with pytest.raises(ValueError, match=r"MetadataResponse|null|cannot be encoded"):
            codec.encode(wrong, 9)
    with pytest.raises(ValueError, match="no version 99"):
        codec.encode(kind(), 99)


def test_a_message_may_not_expand_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of three bytes make objects of a hundred: their sum is bounded, not each array."""
    monkeypatch.setattr("broker.wire.byte_cursor.OBJECT_BYTES_MAX", 10_000)
    kind = messages.DescribeTopicPartitionsRequest
    for count, is_whole in ((20, True), (1000, False)):
        data = codec.encode(kind(topics=[kind.TopicRequest("")] * count), 0)
        if is_whole:
            assert len(codec.decode(kind.__name__, 0, data).topics) == count
        else:
            with pytest.raises(WireError, match="expands to more than"):
                codec.decode(kind.__name__, 0, data)
