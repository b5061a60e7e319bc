"""Read the properties file of a Kafka client, so that the tools can connect and log in.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/logstore/authority.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
        username="admin" password="...";

Instead of `sasl.jaas.config`, the key `sasl.credentials.file` may name a file with a line
`user:password`. If the value of a setting may be a secret, no error shows the value.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Mapping

from broker.listener_config import PEM_ADVICE
from broker.net.tls import limit_to, load_own, load_trusted
from broker.properties import parse_properties
from broker.protocols import MECHANISMS, TLS_VERSIONS, Protocol, parse_choices, parse_protocol
from broker.secret_files import read_key_password, read_own_password, read_settings
from broker.security.client_login import ClientLogin
from broker.security.passwords import Password
from cluster.peers.peer_security import PeerSecurity

PROTOCOL, MECHANISM = "security.protocol", "sasl.mechanism"
JAAS, CREDENTIALS = "sasl.jaas.config", "sasl.credentials.file"
TRUSTED, OWN = "ssl.truststore.location", "ssl.keystore.location"
KEY_PASSWORD, KEY_PASSWORD_FILE = "ssl.key.password", "ssl.key.password.file"
TYPES = ("ssl.truststore.type", "ssl.keystore.type")
STORE_PASSWORDS = ("ssl.truststore.password", "ssl.keystore.password")
HOST_CHECK, VERSIONS = "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols"
SECRETS = (JAAS, KEY_PASSWORD, *STORE_PASSWORDS)
KNOWN = (
    PROTOCOL, MECHANISM, JAAS, CREDENTIALS, TRUSTED, OWN, KEY_PASSWORD, KEY_PASSWORD_FILE, *TYPES,
    *STORE_PASSWORDS, HOST_CHECK, VERSIONS,
)  # fmt: skip
# Settings of Kafka's clients that the tools of this library do not use.
IGNORED = (
    "bootstrap.servers", "client.id", "client.dns.lookup", "connections.max.idle.ms",
    "default.api.timeout.ms", "metadata.max.age.ms", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.ms", "ssl.protocol",
)  # fmt: skip

MODULES = {"PLAIN": "PlainLoginModule", "SCRAM": "ScramLoginModule"}
OPTION = re.compile(r"""\s*(\w+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"';=]+)(?=\s|;)""")
LOGIN = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)(?=\s)", re.I)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
JAAS_FORM = f'write: {JAAS}=MODULE required username="NAME" password="PASSWORD";'
SHOWN_KEY = re.compile(r"[a-z]+(?:\.[a-z]+)+")


def client_security(path: str) -> PeerSecurity:
    """Read a properties file, and the files that it names.

    Raises:
        ValueError: a file cannot be read, or a setting cannot be used. The error names the file.
        ImportError: the mechanism needs the extra `security`.
    """
    try:
        data, is_shared = read_settings(path)
        return security_of(parse_properties(data), is_shared=is_shared)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def security_of(given: Mapping[str, str], *, is_shared: bool = False) -> PeerSecurity:
    """Make the settings of connections from properties.

    Args:
        is_shared: whether users other than the owner may read or change the file.

    Raises:
        ValueError: a setting cannot be used.
    """
    _check_keys(given)
    secret = next((key for key in SECRETS if given.get(key)), None)
    if secret is not None and is_shared:
        reason = "has a password, but others than its owner may read or change the file"
        raise ValueError(f"{secret} {reason}: let only its owner do so (chmod 600)")
    protocol = parse_protocol(given.get(PROTOCOL, "PLAINTEXT"), PROTOCOL)
    _check_protocol(given, protocol)
    mechanism = given.get(MECHANISM, "").strip().upper() if protocol.is_sasl else ""
    own = _login(given, mechanism) if protocol.is_sasl else None
    context = _context(given) if protocol.is_tls else None
    make = None if context is None else lambda: context
    return PeerSecurity(make_context=make, mechanism=mechanism, own=own)


def _check_keys(given: Mapping[str, str]) -> None:
    """Refuse an unknown key.

    Show only text that looks like a key, because other text may be part of a password.
    """
    for key in given:
        if key in KNOWN or key in IGNORED:
            continue
        near = difflib.get_close_matches(key, KNOWN, n=1)
        if not near and not SHOWN_KEY.fullmatch(key):
            raise ValueError("a line has no setting of a client; a value ends at the end of a line")
        hint = f"; did you mean {near[0]}?" if near else f"; the settings are {', '.join(KNOWN)}"
        raise ValueError(f"{key if SHOWN_KEY.fullmatch(key) else 'a key'} is unknown{hint}")


def _check_protocol(given: Mapping[str, str], protocol: Protocol) -> None:
    """Refuse settings of TLS or of a login that the protocol does not use."""
    for prefix, has in (("sasl.", protocol.is_sasl), ("ssl.", protocol.is_tls)):
        found = next((key for key in given if key in KNOWN and key.startswith(prefix)), None)
        if found is not None and not has:
            raise ValueError(f"{found} has no effect with {PROTOCOL}={protocol}")


# --- the login ------------------------------------------------------------------------------------


def _login(given: Mapping[str, str], mechanism: str) -> Password:
    if mechanism not in MECHANISMS:
        raise ValueError(f"{MECHANISM} must be one of {', '.join(MECHANISMS)}")
    file, jaas = given.get(CREDENTIALS), given.get(JAAS)
    if bool(file) == bool(jaas):
        raise ValueError(f"a login needs either {JAAS} or {CREDENTIALS}")
    own = read_own_password(file, CREDENTIALS) if file else parse_jaas(jaas or "", mechanism)
    ClientLogin(mechanism, own)  # this raises ImportError if the extra is missing
    return own


def parse_jaas(text: str, mechanism: str) -> Password:
    """Read the user and the password of a login module, in the syntax of Java's JAAS.

    Raises:
        ValueError: the text has another form, or its module is not for this mechanism.
    """
    wanted = MODULES[mechanism.split("-", maxsplit=1)[0]]
    login = LOGIN.match(text)
    if login is None:
        raise ValueError(f"{JAAS} has another form; {JAAS_FORM}")
    if login[1].rpartition(".")[2] != wanted:
        raise ValueError(f"{JAAS} must name a {wanted}, because {MECHANISM} is {mechanism}")
    options, position = {}, login.end()
    while (option := OPTION.match(text, position)) is not None:
        options[option[1]], position = _unquoted(option[2]), option.end()
    user, secret = options.get("username"), options.get("password")
    if text[position:].strip() != ";" or not user or not secret:
        raise ValueError(f"{JAAS} has another form; {JAAS_FORM}")
    if "\0" in user + secret:
        raise ValueError(f"{JAAS} has a zero byte")
    return Password(user, secret)


def _unquoted(text: str) -> str:
    if text[0] not in "\"'":
        return text
    return ESCAPE.sub(lambda match: CONTROLS.get(match[1], match[1]), text[1:-1])


# --- TLS ------------------------------------------------------------------------------------------


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Make a TLS context. By default, the context trusts the certificates of the system."""
    for key in TYPES:
        if given.get(key, "PEM").strip().upper() != "PEM":
            raise ValueError(f"{key}={given[key]} is not supported; {PEM_ADVICE}")
    for key in STORE_PASSWORDS:
        if given.get(key):
            raise ValueError(f"{key}: remove it, for PEM files have no such password")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = parse_choices(given.get(VERSIONS) or ",".join(TLS_VERSIONS), VERSIONS, TLS_VERSIONS)
    limit_to(context, versions)
    check = given.get(HOST_CHECK, "https").strip().lower()
    if check not in ("", "https"):
        raise ValueError(f"{HOST_CHECK} is neither https nor empty")
    context.check_hostname = bool(check)
    if trusted := given.get(TRUSTED):
        load_trusted(context, trusted, TRUSTED)
    else:
        context.load_default_certs()
    if own := given.get(OWN):
        load_own(context, own, OWN, _key_password(given))
    return context


def _key_password(given: Mapping[str, str]) -> str:
    if file := given.get(KEY_PASSWORD_FILE):
        return read_key_password(file, KEY_PASSWORD_FILE)
    return given.get(KEY_PASSWORD, "")
