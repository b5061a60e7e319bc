"""Make up credentials for users that have none, so that no login shows which users exist.

A made-up credential (a decoy) has to look like a real credential, and must always be the same: at
the next login, after a restart, and at another broker. So all brokers of a cluster share a secret
key, from which decoys are made, and the shapes of the real credentials, which decoys copy. The key
and the shapes are stored in a document:

    {"version":1,"key":"...64 hexadecimal digits...","shapes":[[32,4096,false],[26,8192,true]]}
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from broker.security.scram_credential import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SALT_BYTES_MIN,
    ScramCredential,
    encode_credential,
)

VERSION = 1
KEY_BYTES = 32
SHAPES_MAX = 16
SALT_BYTES = 32  # the size of the salts of `logstore broker-user`
# Kafka's tools draw salts of these characters.
TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"


class BadDecoysError(ValueError):
    """Report a document that cannot be read; the text does not show the key."""


class LaterDecoysError(BadDecoysError):
    """Report a document of a later version of this software."""


class Shape(NamedTuple):
    """The properties of a credential that a client can see without the password.

    Attributes:
        is_text: whether the salt consists of the characters of Kafka's salts.
    """

    salt_bytes: int = SALT_BYTES
    iterations: int = ITERATIONS_MIN
    is_text: bool = False


def shape_of(credential: ScramCredential) -> Shape:
    """Return the shape of a real credential."""
    salt = credential.salt
    return Shape(len(salt), credential.iterations, not salt.translate(None, TEXT))


class Decoys:
    """The secret key and the shapes, which make decoys. The object is never changed.

    Attributes:
        shapes: the shapes in the order in which they were seen, at most `SHAPES_MAX`.
    """

    def __init__(self, key: bytes | None = None, shapes: Iterable[Shape] = ()) -> None:
        """Hold a key, by default a new random one."""
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key
        self.shapes = tuple(shapes)[:SHAPES_MAX]

    def __repr__(self) -> str:
        return f"<Decoys with {len(self.shapes)} shapes>"

    def credential(self, user: str, mechanism: str) -> ScramCredential:
        """Make up a credential for a user; no password fits it."""
        about = b"%s %s" % (mechanism.encode(), user.encode())
        # If a shape is added later, the decoys of most users keep their shapes.
        shape = max(
            self.shapes or (Shape(),),
            key=lambda one: self._bytes(b"%d %d %d %s" % (*one, about), 16),
        )
        salt = self._bytes(b"salt " + about, shape.salt_bytes)
        if shape.is_text:
            salt = bytes(TEXT[number % len(TEXT)] for number in salt)
        stored, server = (
            hmac.digest(self._key, kind + about, HASHES[mechanism])
            for kind in (b"stored ", b"server ")
        )
        return ScramCredential(salt, stored, server, shape.iterations)

    def text(self, user: str, mechanism: str) -> str:
        """Make up a credential in the form in which credentials are stored."""
        return encode_credential(self.credential(user, mechanism))

    def _bytes(self, about: bytes, size: int) -> bytes:
        """Make any number of bytes; without the key, these bytes look random."""
        parts = range(-(-size // 32))
        return b"".join(
            hmac.digest(self._key, b"%d %s" % (part, about), "sha256") for part in parts
        )[:size]

    def knows(self, shape: Shape) -> bool:
        """Report whether the shape is known, or no further shape can be stored."""
        return shape in self.shapes or len(self.shapes) >= SHAPES_MAX

    def with_shapes(self, shapes: Iterable[Shape]) -> Decoys:
        """Return an object with the same key and more shapes."""
        return Decoys(self._key, dict.fromkeys([*self.shapes, *shapes]))

    def encode(self) -> bytes:
        """Write the document."""
        document = {"version": VERSION, "key": self._key.hex(), "shapes": self.shapes}
        return json.dumps(document, separators=(",", ":")).encode()


def parse_decoys(data: bytes) -> Decoys:
    """Read the document. Raises BadDecoysError, or LaterDecoysError."""
    version = VERSION
    try:
        document = json.loads(data)
        version = document["version"]
        key, shapes = bytes.fromhex(document["key"]), [Shape(*one) for one in document["shapes"]]
        is_sound = (
            version == VERSION
            and len(key) == KEY_BYTES
            and len(shapes) <= SHAPES_MAX
            and all(map(_is_sound, shapes))
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    if type(version) is int and version > VERSION:
        raise LaterDecoysError(f"the document has the version {version}, not {VERSION}")
    if not is_sound:
        raise BadDecoysError("the document is not one of made-up credentials")
    return Decoys(key, shapes)


def _is_sound(shape: Shape) -> bool:
    salt_bytes, iterations, is_text = shape
    return (
        type(salt_bytes) is type(iterations) is int
        and type(is_text) is bool
        and SALT_BYTES_MIN <= salt_bytes <= SALT_BYTES_MAX
        and ITERATIONS_MIN <= iterations <= ITERATIONS_MAX
    )
