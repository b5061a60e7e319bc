"""Hold the two keys that a broker stores for a SCRAM password.

The broker never stores the password.

    salted     PBKDF2(hash, password, salt, iterations)
    StoredKey  H(HMAC(salted, "Client Key"))
    ServerKey  HMAC(salted, "Server Key")

The keys are stored as text, in the layout that Kafka uses in ZooKeeper (base64 of the bytes):

    salt=...,stored_key=...,server_key=...,iterations=4096
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import NamedTuple

from broker.security.errors import BadCredentialError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
SALT_BYTES_MIN, SALT_BYTES_MAX = 12, 1024  # RFC 5802 has no minimum, but the library scramp does
TEXT_FIELDS = {"salt", "stored_key", "server_key", "iterations"}


class ScramCredential(NamedTuple):
    """The keys of one user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"<ScramCredential, {self.iterations} iterations>"

    def __str__(self) -> str:
        return repr(self)


def credential_of_salted(
    mechanism: str, salt: bytes, salted: bytes, iterations: int
) -> ScramCredential:
    """Make the keys from a salted password. Kafka's admin clients send such passwords.

    Raises:
        BadCredentialError: a value has the wrong size.
    """
    name = HASHES[mechanism]
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise BadCredentialError(
            f"{iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        )
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise BadCredentialError(
            f"a salt of {len(salt)} bytes; {SALT_BYTES_MIN} to {SALT_BYTES_MAX} are allowed"
        )
    if len(salted) != hashlib.new(name).digest_size:
        raise BadCredentialError(f"the salted password has {len(salted)} bytes")
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


def credential_of_password(
    mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Make the keys from a password."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salt, salted, iterations)


def encode_credential(credential: ScramCredential) -> str:
    """Write the keys as text."""
    salt, stored, server = (b64encode(one).decode() for one in credential[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def parse_credential(mechanism: str, text: str) -> ScramCredential:
    """Read the keys from text.

    Raises:
        BadCredentialError: the text is not a credential. The error does not show the text.
    """
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    size = hashlib.new(HASHES[mechanism]).digest_size
    try:
        if fields.keys() != TEXT_FIELDS or not fields["iterations"].isascii():
            raise ValueError
        salt, stored, server = (
            b64decode(fields[one], validate=True) for one in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except ValueError:
        raise BadCredentialError(f"the text is not a credential of {mechanism}") from None
    is_sound = (
        len(stored) == len(server) == size
        and SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX
        and ITERATIONS_MIN <= iterations <= ITERATIONS_MAX
    )
    if not is_sound:
        raise BadCredentialError(f"the text is not a credential of {mechanism}")
    return ScramCredential(salt, stored, server, iterations)
