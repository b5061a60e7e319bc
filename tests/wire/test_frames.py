"""Frames are cut from any stream of pieces, and headers are those of the version."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.frames import (
    FrameSplitter,
    Request,
    decode_response,
    encode_request,
    encode_response,
    parse_request,
)
from broker.wire.versions import MILESTONES, ApiVersions

ALL = ApiVersions(MILESTONES)


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_of_pieces_of_any_size(frames: list[bytes], sizes: list[int]) -> None:
    """The pieces that a socket gives have nothing to do with frames, which may be empty."""
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    splitter = FrameSplitter()
    found: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        found += map(bytes, splitter.feed(stream[at : at + size]))
        at += size
        turn += 1
    assert found == frames
    assert splitter.is_between_frames


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4, 9])
def test_a_size_out_of_bounds_is_refused(size: int, step: int) -> None:
    """A negative size, and one above the limit, end the connection before a byte is kept."""
    splitter = FrameSplitter(100)
    data = struct.pack(">i", size) + bytes(5)
    with pytest.raises(WireError, match=f"a frame of {size} bytes"):
        for at in range(0, len(data), step):
            splitter.feed(data[at : at + step])


def test_a_client_that_begins_tls_is_recognised() -> None:
    """The error says that the listener has no TLS."""
    with pytest.raises(WireError, match="this listener has no TLS"):
        FrameSplitter(100 << 20).feed(bytes.fromhex("16030100f5"))


def test_regression_bytes_after_a_request_are_ignored() -> None:
    """Kafka ignores them, and librdkafka 2.16 sends three in a Metadata request for all topics."""
    frame = bytes.fromhex("0003000d0000000100077264") + b"kafka\0" + bytes.fromhex("00000000010000")
    request = parse_request(frame, ALL)
    assert (request.key, request.version, request.client_id) == (3, 13, "rdkafka")
    assert request.message().topics is None


def test_a_partial_frame_is_known() -> None:
    """A connection is idle only if it is between two frames."""
    splitter = FrameSplitter()
    assert splitter.is_between_frames
    assert splitter.feed(b"\0\0\0") == []
    assert not splitter.is_between_frames
    (frame,) = splitter.feed(b"\2ab")
    assert bytes(frame) == b"ab"
    assert splitter.is_between_frames


def test_a_whole_frame_is_not_copied() -> None:
    """The frames that one piece holds are views of it."""
    piece = b"\0\0\0\1a\0\0\0\2bc"
    frames = FrameSplitter().feed(piece)
    assert [bytes(frame) for frame in frames] == [b"a", b"bc"]
    assert all(frame.obj is piece for frame in frames)


def head_of(request: Request) -> tuple[int, int, int, str | None]:
    """Return the fields of a request's header."""
    return request.key, request.version, request.correlation_id, request.client_id


@pytest.mark.parametrize("client_id", [None, "", "console-producer", "größe"])
@pytest.mark.parametrize(("key", "version"), [(3, 4), (3, 12), (18, 0), (18, 3), (17, 1), (4, 5)])
def test_requests_and_responses_come_back(key: int, version: int, client_id: str | None) -> None:
    """A header before version 2 ends with the client id; a flexible one with tagged fields."""
    name = {3: "Metadata", 18: "ApiVersions", 17: "SaslHandshake", 4: "LeaderAndIsr"}[key]
    message = messages.classes_of(name + "Request")[name + "Request"]()
    frame = encode_request(key, version, 77, client_id, message)
    (body,) = FrameSplitter().feed(frame)
    request = parse_request(body, ALL)
    assert head_of(request) == (key, version, 77, client_id)
    assert request.message() == message
    assert not request.is_unknown_version
    answer = messages.classes_of(name + "Response")[name + "Response"]()
    (body,) = FrameSplitter().feed(encode_response(key, version, 77, answer))
    assert decode_response(key, version, body) == (77, answer)
    is_long = (key, version) in ((3, 12), (4, 5))
    assert body[4] == 0 if is_long else len(body) == 4 + len(codec.encode(answer, version))


def test_an_unknown_version_of_api_versions_is_answered() -> None:
    """Its header is that of version 1, and its body may be anything; other APIs are refused."""
    header = struct.pack(">hhih", 18, 99, 5, 1) + b"c"
    request = parse_request(header + b"\xff\xff", ALL)
    assert head_of(request) == (18, 99, 5, "c")
    assert request.is_unknown_version
    answer = messages.ApiVersionsResponse(error_code=35)
    assert encode_response(18, 0, 5, answer) == b"\0\0\0\x0a\0\0\0\5\0\x23\0\0\0\0"
    for key, version in ((3, 99), (0, 2), (71, 0), (999, 0), (-1, 0)):
        with pytest.raises(WireError, match="is not accepted"):
            parse_request(struct.pack(">hhih", key, version, 5, 1) + b"c", ALL)


def test_what_is_not_announced_is_refused() -> None:
    """An API of a later milestone has a schema, but its requests are not taken."""
    frame = encode_request(12, 4, 1, None, messages.HeartbeatRequest())
    assert parse_request(frame[4:], ALL).key == 12
    with pytest.raises(WireError, match="version 4 of the API 12 is not accepted"):
        parse_request(frame[4:], ApiVersions(["base"]))


@pytest.mark.parametrize("size", range(10))
def test_a_cut_header_is_refused(size: int) -> None:
    """However short it is."""
    frame = bytes(encode_request(3, 12, 1, "client", messages.MetadataRequest()))[4:]
    with pytest.raises(WireError):
        parse_request(frame[:size], ALL)


def outcome(frame: bytes) -> object:
    """Return what the header of a request gives, or why it is refused."""
    try:
        request = parse_request(frame, ALL)
        return (*head_of(request), bytes(request.body))
    except WireError as error:
        return str(error)


def test_a_header_that_is_read_by_hand_is_the_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, cut and changed headers give the same values and the same refusals."""
    rng, frames = random.Random(7), []
    for key, version, client_id in itertools.product((0, 1, 3, 18), (4, 9, 12), ("", "c", "größe")):
        head = struct.pack(">hhih", key, version, 5, len(client_id.encode()))
        whole = head + client_id.encode() + b"\0body"
        frames += [whole, *(whole[:end] for end in range(len(whole)))]
        for _ in range(200):
            changed = bytearray(whole)
            changed[rng.randrange(4, len(whole))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
            frames.append(bytes(changed))
    by_hand = [outcome(frame) for frame in frames]
    monkeypatch.setattr("broker.wire.frames._plain_request", lambda view, is_flexible: None)
    assert by_hand == [outcome(frame) for frame in frames]
    assert len({str(one) for one in by_hand}) > 100
