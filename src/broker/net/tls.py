"""Make the TLS contexts for the listeners, and for connections to other brokers."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from broker.config import BrokerConfig
from broker.listener_config import PEM_ADVICE
from broker.protocols import names_in
from broker.secret_files import change_of, check_key_file, read_key_password

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# For TLS 1.2, allow only ciphers with forward secrecy that also authenticate the data.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
VERIFY = {
    "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
}  # fmt: skip


def listener_context(config: BrokerConfig) -> ssl.SSLContext:
    """Make the context of the listeners. Raises ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    limit_to(context, names_in(config.ssl_enabled_protocols))
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    _load_own(context, config)
    context.verify_mode = VERIFY[config.ssl_client_auth]
    if config.ssl_client_auth != "none":
        _load_trusted(context, config)
    return context


def peer_context(config: BrokerConfig) -> ssl.SSLContext:
    """Make the context with which this broker connects to other brokers. Raises ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limit_to(context, names_in(config.ssl_enabled_protocols))
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    _load_trusted(context, config)
    if config.ssl_keystore_location:
        _load_own(context, config)
    return context


def file_state(config: BrokerConfig) -> object:
    """Return a value that changes when a certificate file is replaced or written."""
    paths = config.ssl_keystore_location, config.ssl_truststore_location
    return tuple(change_of(path) for path in paths if path)


def _load_own(context: ssl.SSLContext, config: BrokerConfig) -> None:
    file = config.ssl_key_password_file
    secret = read_key_password(file, "ssl_key_password_file") if file else ""
    load_own(context, config.ssl_keystore_location, "ssl_keystore_location", secret)


def _load_trusted(context: ssl.SSLContext, config: BrokerConfig) -> None:
    load_trusted(context, config.ssl_truststore_location, "ssl_truststore_location")


def limit_to(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Allow only the TLS versions from the lowest to the highest in `names`, and only `CIPHERS`."""
    versions = [VERSIONS[one] for one in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.set_ciphers(CIPHERS)


def load_own(context: ssl.SSLContext, path: str, key: str, secret: str) -> None:
    """Load a private key and its certificates.

    Args:
        key: the setting that names the file.
        secret: the password of the private key; "" if it has none.

    Raises:
        ValueError: the file cannot be used. The error names the setting.
    """
    check_key_file(path, key)
    try:
        # Without a password here, OpenSSL would ask for a password at the terminal.
        context.load_cert_chain(path, password=lambda: secret)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{key}: {path} must have a private key and its certificates in PEM "
            f"({_reason(error)}; if the key has a password, set ssl.key.password.file); "
            f"{PEM_ADVICE}"
        ) from error


def load_trusted(context: ssl.SSLContext, path: str, key: str) -> None:
    """Load the trusted certificates. Raises a ValueError that names the setting."""
    try:
        context.load_verify_locations(path)
    except OSError as error:  # an SSLError is an OSError, too
        raise ValueError(
            f"{key}: {path} must have certificates in PEM ({_reason(error)}); {PEM_ADVICE}"
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
