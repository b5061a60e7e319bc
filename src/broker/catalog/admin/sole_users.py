"""Keep the SCRAM credentials of a broker without a cluster, in its embedded coordination store."""

from __future__ import annotations

from functools import partial

from broker.catalog.topic_store import TopicStore
from broker.security.scram_credential import ScramCredential
from broker.security.user_settings import Changes, Keys, credential_in, credentials_in, merged
from logstore import LogStore


class SoleUsers:
    """Implement `UserCredentials` for one store. All brokers of that store share the users.

    Threads: any thread may call any method.
    """

    def __init__(self, store: LogStore) -> None:
        self._topics = TopicStore.of(store)

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism."""
        return credential_in(self._topics.users.get(user, {}), mechanism, user)

    def listed(self) -> dict[str, Keys]:
        """Return the credentials of each user that has a credential."""
        known = {user: credentials_in(one, user) for user, one in self._topics.users.copy().items()}
        return {user: keys for user, keys in known.items() if keys}

    def change(self, changes: Changes) -> None:
        """Write and delete credentials. Raises LogStoreError."""
        self._topics.change_users(
            {user: partial(merged, changes=own) for user, own in changes.items()}
        )

    def close(self) -> None:
        """Release the coordination store."""
        self._topics.release()
