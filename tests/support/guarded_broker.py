"""A broker with an authorizer, each of whose listeners gives its clients a principal.

The server takes any handler. So this one sets the principal of each client, as authentication does,
and hands the request on to the dispatcher.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from broker.authorization.acl_snapshot import AclSnapshot
from broker.authorization.bindings import (
    CLUSTER_NAME,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from broker.catalog.admin.acls import Acls
from broker.config import BrokerConfig
from broker.machines.exchange import Answer, Client, Pending
from broker.net.server import Server
from broker.requests.dispatcher import Dispatcher
from broker.requests.services import Services
from logstore import LogStore

PRINCIPALS = {"ADMIN": "User:admin", "ALICE": "User:alice"}


def allowing(
    operation: Operation,
    kind: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> Binding:
    """Make an ACL for alice."""
    return Binding(Pattern(kind, pattern, name), Entry(principal, host, operation, permission))


class GuardedBroker:
    """The broker; `address` is where the clients with a principal connect."""

    def __init__(
        self, place: Path, principals: Mapping[str, str] = PRINCIPALS, **settings: Any
    ) -> None:
        given: dict[str, Any] = {
            "authorizer_class_name": "StandardAuthorizer", "super_users": "User:admin",
            "offsets_topic_num_partitions": 1,
        }  # fmt: skip
        listeners = ",".join(f"{name}://127.0.0.1:0" for name in principals)
        self.config = BrokerConfig(listeners=listeners, **given | settings)
        self.store = LogStore.open(
            [place], config=self.config.store_config.replace(log_config=self.config.log_config),
            admin_socket=False,
        )  # fmt: skip
        self.services = Services(self.store, self.config)
        self._principals, self._dispatcher = principals, Dispatcher(self.services)
        self.server = Server(self.config, self._answer)
        self.services.start(self.server.tasks)
        self.server.start()

    def _answer(self, frame: memoryview, client: Client) -> Answer | Pending:
        client.principal = self._principals[client.endpoint.name]
        return self._dispatcher(frame, client)

    def address(self, name: str) -> str:
        """Give the address of a listener."""
        found = {one.endpoint.name: one.endpoint for one in self.server.listeners}
        return f"127.0.0.1:{found[name].port}"

    @property
    def acls(self) -> Acls:
        """The ACLs."""
        assert self.services.acls is not None
        return self.services.acls

    def decide_by(self, *bindings: Binding) -> None:
        """Let the authorizer decide by these ACLs, without writing them down."""
        self.acls.authorizer.replace(AclSnapshot.of(bindings))

    def close(self) -> None:
        """Stop, and close the store."""
        self.server.stop(5.0)
        self.services.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
