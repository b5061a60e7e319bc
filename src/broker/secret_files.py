"""Read files with passwords and private keys. No error shows a part of a file."""

from __future__ import annotations

from broker.security.errors import BadCredentialError
from broker.security.passwords import FILE_BYTES_MAX, Password, parse_passwords
from logstore.disk import files

ALL_BUT_OWNER, ALL_OTHERS = 0o077, 0o007  # permissions that a secret file must not give


def read_passwords(path: str, key: str) -> list[Password]:
    """Read a users file. Raises ValueError, which names the key of the setting."""
    try:
        return parse_passwords(_read(path, ALL_BUT_OWNER))
    except OSError as error:
        raise ValueError(
            f"{key}: {path} cannot be read: {error.strerror or error}; write lines of the form "
            "user:password, and let only the owner read the file (chmod 600)"
        ) from error
    except BadCredentialError as error:
        raise ValueError(f"{key}: {path}: {error}") from error


def read_own_password(path: str, key: str) -> Password:
    """Read a file with one line, `user:password`. Raises ValueError."""
    found = read_passwords(path, key)
    if len(found) != 1:
        raise ValueError(f"{key}: {path} has {len(found)} users, but must have exactly one")
    return found[0]


def read_key_password(path: str, key: str) -> str:
    """Read the password of a private key: the first line of a file. Raises ValueError."""
    try:
        data = _read(path, ALL_BUT_OWNER)
    except OSError as error:
        raise ValueError(f"{key}: {path} cannot be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8").split("\n", maxsplit=1)[0].rstrip("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{key}: {path} is not valid UTF-8") from None


def read_settings(path: str) -> tuple[bytes, bool]:
    """Read a file of settings; report whether users other than its owner may read or change it.

    Raises:
        OSError: the file cannot be read, or is too large.
    """
    fd = files.open_regular(files.real_path(path), files.READ)
    try:
        is_shared = bool(files.fstat(fd).st_mode & ALL_BUT_OWNER)
        return _content(fd), is_shared
    finally:
        files.close(fd)


def check_key_file(path: str, key: str) -> None:
    """Raise ValueError if every user of the machine can read a private key."""
    try:
        _read(path, ALL_OTHERS)
    except OSError as error:
        raise ValueError(f"{key}: {path} cannot be read: {error.strerror or error}") from error


def change_of(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is replaced or written; None if there is no file."""
    try:
        facts = files.stat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _read(path: str, forbidden: int) -> bytes:
    # follow links, because paths of secrets are often links
    fd = files.open_regular(files.real_path(path), files.READ)
    try:
        if files.fstat(fd).st_mode & forbidden:
            raise PermissionError(1, "others than its owner may read or change it", path)
        return _content(fd)
    finally:
        files.close(fd)


def _content(fd: int) -> bytes:
    if files.fstat(fd).st_size > FILE_BYTES_MAX:
        raise OSError(27, f"it has more than {FILE_BYTES_MAX} bytes")
    return files.read_up_to(fd, FILE_BYTES_MAX, 0)
