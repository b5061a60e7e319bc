"""Define the security protocols of listeners. Read settings that are lists of names."""

from __future__ import annotations

from enum import StrEnum

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = ("none", "requested", "required")


class Protocol(StrEnum):
    """A security protocol: whether a connection is encrypted, and whether its client logs in."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether clients log in with a name and a password."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


def parse_protocol(text: str, key: str) -> Protocol:
    """Read the name of a protocol."""
    try:
        return Protocol(text.strip().upper())
    except ValueError:
        raise ValueError(f"{key}: {text.strip()!r} is not one of {', '.join(Protocol)}") from None


def parse_protocol_map(text: str, key: str) -> dict[str, Protocol]:
    """Read pairs such as `CLIENT:SASL_SSL,INSIDE:PLAINTEXT`; names are in upper case."""
    found = {}
    for entry in names_in(text):
        name, colon, protocol = entry.partition(":")
        if not (colon and name.strip()):
            raise ValueError(f"{key}: {entry!r} is not of the form NAME:PROTOCOL")
        found[name.strip().upper()] = parse_protocol(protocol, key)
    return found


def parse_choices(text: str, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Read a list of names that are separated by commas; all of them must be known."""
    found = tuple(names_in(text))
    for one in found:
        if one not in known:
            raise ValueError(f"{key}: {one!r} is not one of {', '.join(known)}")
    return found


def names_in(text: str, separator: str = ",") -> list[str]:
    """Cut a text at a separator. Leave out empty parts, and the blanks around each part."""
    return [part.strip() for part in text.split(separator) if part.strip()]
