"""Read the user and the password for ZooKeeper from a file that only its owner can read."""

from __future__ import annotations

from cluster.errors import ClusterStartError
from cluster.zookeeper import Credentials
from logstore.disk import files

FILE_BYTES_MAX = 4096
OTHERS = 0o077  # the permissions of the group and of all others
ADVICE = "write one line, user:password, and let only its owner read it (chmod 600)"


def read_credentials(path: str) -> Credentials:
    """Read a file with one line in UTF-8, `user:password`.

    Raises:
        ClusterStartError: the file cannot be read, other users can read it, or its content has
            another form.
    """
    try:
        data = _read(path)
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror or error}); {ADVICE}"
        raise ClusterStartError(reason=reason) from error
    found = _parse(data)
    if found is None:
        raise ClusterStartError(reason=f"{path} is not a file of credentials; {ADVICE}")
    return found


def _parse(data: bytes) -> Credentials | None:
    """Read `user:password` in UTF-8; None if the bytes are something else.

    A decoding error is dropped, because its text has a part of the password.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    user, colon, password = text.rstrip("\r\n").partition(":")
    if not (user and colon and password) or "\n" in password or len(data) > FILE_BYTES_MAX:
        return None
    return Credentials(user, password)


def _read(path: str) -> bytes:
    fd = files.open_regular(path, files.READ)
    try:
        if files.fstat(fd).st_mode & OTHERS:
            raise PermissionError(1, "users other than its owner may read or change it", path)
        return files.read_up_to(fd, FILE_BYTES_MAX + 1, 0)
    finally:
        files.close(fd)
