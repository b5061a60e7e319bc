"""Keep the ACLs of a broker without a cluster beside its topics, in every log dir."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.acls.acl_store import AclRefusedError, AclStore, Change, in_batches
from broker.authorization.acl_znodes import path_of
from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.bindings import Pattern
from broker.catalog.topic_store import TopicLimitError, TopicStore
from broker.wire.error_codes import ErrorCode
from logstore import LogStore, LogStoreError


class SoleAcls(AclStore):
    """The ACLs in the embedded coordination store, which the brokers of a process share."""

    def __init__(self, store: LogStore, settings: AuthorizerSettings, acls_max: int) -> None:
        """Read the ACLs.

        Raises:
            LogStoreError: a copy of the coordination store is damaged.
        """
        super().__init__(settings, acls_max)
        self._topics = TopicStore.of(store)
        self._leave = self._topics.watch_acls(self.catch_up)
        self.catch_up()

    def start(self) -> None:
        """Do nothing: the changes of other brokers of this process come by a call."""

    def close(self) -> None:
        """Stop following changes."""
        self._leave()
        self._topics.release()

    def catch_up(self) -> None:
        """Decide by the ACLs that the store has in memory."""
        with self._reading:
            znodes = self._topics.acls
            if znodes is not None:
                self.authorizer.replace(self._read.read_all(znodes))

    def _write(self, changes: Mapping[Pattern, Change]) -> None:
        try:
            for batch in in_batches(changes):
                self._topics.change_acls(partial(_znodes_after, batch))
        except TopicLimitError as error:
            raise AclRefusedError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except LogStoreError as error:
            raise AclRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _znodes_after(
    changes: Mapping[Pattern, Change], present: Mapping[str, bytes]
) -> dict[str, bytes | None]:
    """Return the data of the changed znodes."""
    paths = {path_of(pattern): change for pattern, change in changes.items()}
    return {path: change.applied_to(path, present.get(path)) for path, change in paths.items()}
