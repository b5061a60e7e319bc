"""Cut a stream of bytes into frames. Read and write the headers of requests and responses.

frame int32 size, then `size` bytes
request header   int16 key, int16 version, int32 correlation id, int16 string client id;
                 in a flexible version also tagged fields
response header  int32 correlation id; in a flexible version also tagged fields, but never in a
                 response of ApiVersions
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

from broker.wire import codec, messages
from broker.wire.byte_cursor import Cursor, Data, WireError
from broker.wire.schemas import api_names, schema_of
from broker.wire.versions import API_VERSIONS, ApiVersions

FRAME_BYTES_MAX = 100 << 20  # the default of Kafka's `socket.request.max.bytes`
GATHERED_BYTES = 16 << 10  # smaller pieces of a frame are joined
SIZE = struct.Struct(">i")
TLS_HANDSHAKE = 0x1603  # the first two bytes of a client that begins TLS
TLS_HINT = "; these bytes begin TLS, but this listener has no TLS"
_API = struct.Struct(">hh")
# The fields before the client id in the header of a request, and the length of the client id.
_REQUEST_HEAD = struct.Struct(">hhih")
_NO_BODY = memoryview(b"")


class FrameSplitter:
    """Cut the bytes of a socket into frames, and remove the size before each frame.

    The memory grows with the bytes that have arrived, not with the declared size of a frame. If a
    whole frame arrives in one piece, the result is a view of that piece. If a frame arrives in
    several pieces, they are joined once. Small pieces are joined earlier, so that a slow sender
    costs little memory.

    Attributes:
        declared_bytes: the size of the incomplete frame; 0 if no frame is begun, or if the size is
            not known yet.
        frame_bytes_max: the largest size of a frame. This limit may be changed between two frames.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._head = bytearray()  # the part of the size field that has arrived
        self._pieces: list[Data] = []  # the bytes after the size
        self._held_bytes = 0  # the number of bytes in `_pieces`
        self.declared_bytes = 0

    @property
    def is_between_frames(self) -> bool:
        """Report whether the splitter holds no part of an incomplete frame."""
        return not self._head

    @property
    def missing_bytes(self) -> int:
        """Return how many bytes of the incomplete frame are missing, if this is known."""
        return self.declared_bytes - self._held_bytes

    def feed(self, data: Data) -> list[memoryview]:
        """Add bytes; return the complete frames. After a `WireError`, close the connection."""
        left = memoryview(data)
        frames = []
        while left:
            if not self._head and len(left) >= SIZE.size:
                end = SIZE.size + self._size(left)
                if len(left) >= end:
                    frames.append(left[SIZE.size : end])
                    left = left[end:]
                    continue
            if len(self._head) < SIZE.size:
                taken = left[: SIZE.size - len(self._head)]
                self._head += taken
                left = left[len(taken) :]
                if len(self._head) < SIZE.size:
                    break
                self.declared_bytes = self._size(self._head)
            taken = left[: self.missing_bytes]
            self._hold(taken)
            left = left[len(taken) :]
            if not self.missing_bytes:
                frames.append(memoryview(b"".join(self._pieces)))
                self._head.clear()
                self._pieces, self._held_bytes, self.declared_bytes = [], 0, 0
        return frames

    def _hold(self, piece: memoryview) -> None:
        """Store a piece of the incomplete frame."""
        self._held_bytes += len(piece)
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) < GATHERED_BYTES:
            last += piece
        else:
            self._pieces.append(piece if len(piece) >= GATHERED_BYTES else bytearray(piece))

    def _size(self, data: bytearray | memoryview) -> int:
        """Read the size at the beginning of a frame."""
        (size,) = SIZE.unpack_from(data)
        if not 0 <= size <= self.frame_bytes_max:
            allowed = f"a frame of {size} bytes; 0 to {self.frame_bytes_max} are allowed"
            is_tls = size >> 16 == TLS_HANDSHAKE
            raise WireError(0, f"{allowed}{TLS_HINT if is_tls else ''}")
        return int(size)


@dataclass(slots=True)
class Request:
    """A request after its header was read.

    Attributes:
        body: the bytes after the header, until `drop_body`.
        decoded: the message in the body, or the allowed part of it; None if it is not decoded yet.
    """

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    decoded: Any = None

    @property
    def is_unknown_version(self) -> bool:
        """Report whether this is an ApiVersions request of an unknown version.

        The answer to an ApiVersions request of an unknown version is UNSUPPORTED_VERSION (35), in
        version 0 of the response.
        """
        return self.key == API_VERSIONS and self.version not in _versions(API_VERSIONS)

    def message(self) -> Any:
        """Decode the body. Ignore bytes after its end, as Kafka does.

        librdkafka 2.16 sends three bytes more than the body in a Metadata request for all topics.
        """
        if self.decoded is not None:
            return self.decoded
        return codec.read(api_names()[self.key] + "Request", self.version, Cursor(self.body))

    def drop_body(self) -> None:
        """Release the memory of the body, because the request waits and needs only its header."""
        self.body, self.decoded = _NO_BODY, None


def parse_request(frame: Data, accepted: ApiVersions) -> Request:
    """Read the header of a request.

    Raises:
        WireError: the header is damaged, or the version is not accepted. Close the connection.
            There is one exception: an ApiVersions request of an unknown version is returned (see
            `is_unknown_version`).
    """
    view = memoryview(frame)
    if len(view) < 4:
        raise WireError(0, "the bytes end inside the header")
    key, version = _API.unpack_from(view)
    if accepted.accepts(key, version):
        plain = _plain_request(view, is_flexible=_is_flexible(key, version))
        if plain is not None:
            return plain
    is_known = accepted.accepts(key, version)
    if not is_known and (key != API_VERSIONS or version in _versions(API_VERSIONS)):
        raise WireError(0, f"version {version} of the API {key} is not accepted")
    cursor = Cursor(view)
    is_flexible = is_known and _is_flexible(key, version)
    header = codec.read("RequestHeader", 2 if is_flexible else 1, cursor)
    return Request(key, version, header.correlation_id, header.client_id, view[cursor.at :])


def _plain_request(view: memoryview, *, is_flexible: bool) -> Request | None:
    """Read a header that has a client id and no tags; return None for every other header.

    Almost all headers are of this kind. The codec would read the same values, but more slowly.
    """
    if len(view) <= _REQUEST_HEAD.size:
        return None
    key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(view)
    end = _REQUEST_HEAD.size + size
    if size < 0 or end + is_flexible > len(view) or (is_flexible and view[end]):
        return None
    try:
        client_id = str(view[_REQUEST_HEAD.size : end], "utf-8")
    except UnicodeDecodeError:
        return None
    return Request(key, version, correlation_id, client_id, view[end + is_flexible :])


@functools.cache
def _is_flexible(key: int, version: int) -> bool:
    """Report whether a version of an API has tagged fields; call it only for accepted versions."""
    return schema_of(api_names()[key] + "Request").is_flexible(version)


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> bytearray:
    """Encode a request as a frame with its size."""
    is_flexible = _is_flexible(key, version)
    header = messages.RequestHeader(key, version, correlation_id, client_id)
    out = bytearray(SIZE.size)
    codec.write(out, header, 2 if is_flexible else 1)
    codec.write(out, message, version)
    SIZE.pack_into(out, 0, len(out) - SIZE.size)
    return out


def encode_response(key: int, version: int, correlation_id: int, message: Any) -> bytearray:
    """Encode a response as a frame with its size."""
    out = bytearray(SIZE.size)
    out += response_header(key, version, correlation_id)
    codec.write(out, message, version)
    SIZE.pack_into(out, 0, len(out) - SIZE.size)
    return out


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    """Encode the header of a response."""
    return SIZE.pack(correlation_id) + b"\0" * _response_header_version(key, version)


def decode_response(key: int, version: int, frame: Data) -> tuple[int, Any]:
    """Decode a frame as a response; return the correlation id and the message."""
    cursor = Cursor(memoryview(frame))
    header = codec.read("ResponseHeader", _response_header_version(key, version), cursor)
    message = codec.read(api_names()[key] + "Response", version, cursor)
    cursor.finish()
    return header.correlation_id, message


@functools.cache
def _response_header_version(key: int, version: int) -> int:
    """Return the version of a response's header: 1 if it is flexible, but 0 for ApiVersions.

    Every client must be able to read the answer to ApiVersions.
    """
    if key == API_VERSIONS:
        return 0
    return int(schema_of(api_names()[key] + "Response").is_flexible(version))


def _versions(key: int) -> range:
    """Return the versions of an API that have a schema."""
    first, end = schema_of(api_names()[key] + "Request").versions
    return range(first, end)
