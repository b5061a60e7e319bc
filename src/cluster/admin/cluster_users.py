"""Keep the SCRAM credentials of a cluster in its coordination store.

A broker reads a credential at each login, so a change takes effect at all brokers at once. While
the store does not answer, brokers and clients can still log in: the broker then uses the credential
that it read last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from broker.coordination.errors import (
    BadVersionError,
    BadZnodeError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
)
from broker.coordination.verbs import (
    Create,
    Delete,
    Operation,
    Session,
    SessionState,
    Set,
)
from broker.security.scram_credential import ScramCredential
from broker.security.user_settings import (
    USERS,
    Changes,
    Keys,
    credential_in,
    credentials_in,
    encode_settings,
    merged,
    parse_settings,
    user_of,
    user_path,
)
from logstore import LogStoreError

LOG = logging.getLogger("cluster")
KEPT_MAX = 10_000  # how many users are remembered, for times when the store does not answer
TRIES = 10  # other brokers may change the same user


class ClusterUsers:
    """Implement `UserCredentials` for a broker of a cluster.

    Threads: any thread may call any method. `_lock` guards the remembered credentials.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._kept: dict[str, dict[str, str]] = {}
        self._is_connected = True
        session.on_session(self._heard)

    def _heard(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential; if the store does not answer, the last known credential."""
        if not self._is_connected:  # a login must not wait for a long read
            return credential_in(self._kept.get(user, {}), mechanism, user)
        try:
            settings = self._read(user)[0]
        except CoordinationError as error:
            LOG.warning("the credential of a user cannot be read now: %s", error)
            settings = self._kept.get(user, {})
        else:
            self._keep(user, settings)
        return credential_in(settings, mechanism, user)

    def _keep(self, user: str, settings: dict[str, str]) -> None:
        with self._lock:
            self._kept.pop(user, None)
            if settings:
                self._kept[user] = settings
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def _read(self, user: str) -> tuple[dict[str, str], int | None]:
        """Read the settings of a user, and their version. Without settings, the version is None."""
        path = user_path(user)
        try:
            znode = self._session.get(path)
            return parse_settings(znode.data, path), znode.version
        except NoNodeError:
            return {}, None

    def listed(self) -> dict[str, Keys]:
        """Return the credentials of each user that has a credential. Raises LogStoreError."""
        try:
            names = [user_of(part) for part in self._session.children(USERS)]
        except NoNodeError:
            return {}
        except CoordinationError as error:
            raise _not_known(error) from error
        found = {}
        for user in names:
            try:
                found[user] = credentials_in(self._read(user)[0], user)
            except BadZnodeError as error:
                LOG.warning("a user is left out: %s", error)
            except CoordinationError as error:
                raise _not_known(error) from error
        return {user: keys for user, keys in found.items() if keys}

    def change(self, changes: Changes) -> None:
        """Write and delete credentials, all or none. Raises LogStoreError."""
        for _ in range(TRIES):
            try:
                found = [self._operation(user, own) for user, own in changes.items()]
                self._session.multi([one for one in found if one is not None])
                return
            except (BadVersionError, NodeExistsError):
                continue  # another broker has changed the user first, so read again
            except NoNodeError:
                self._prepare()
            except CoordinationError as error:
                raise _not_known(error) from error
        raise LogStoreError("the users were changed during each attempt; try again")

    def _operation(self, user: str, own: Mapping[str, ScramCredential | None]) -> Operation | None:
        path = user_path(user)
        old, version = self._read(user)
        new = merged(old, own)
        if version is None:
            return Create(path, encode_settings(new)) if new else None
        return Set(path, encode_settings(new), version) if new else Delete(path, version)

    def _prepare(self) -> None:
        """Create the parents of the users."""
        parent = ""
        for part in USERS.split("/")[1:]:
            parent += f"/{part}"
            try:
                self._session.create(parent)
            except NodeExistsError:
                continue
            except CoordinationError as error:
                raise _not_known(error) from error

    def close(self) -> None:
        """Do nothing. Other parts of the broker use the session, and close it."""


def _not_known(error: CoordinationError) -> LogStoreError:
    return LogStoreError(f"the coordination store does not answer; try again: {error}")
