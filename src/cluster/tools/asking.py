"""Send requests to a cluster, as a client does: to any broker, or to the controller.

Each request has a version that Kafka 3 and 4 also know, so the requests also work for Kafka's
brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import PeerError, PeerRefusalError
from cluster.peers.peer_security import OPEN, PeerSecurity
from cluster.run.peer_connection import PeerConnection

METADATA, CONFIGS, ELECT, REASSIGN, REASSIGNMENTS = (3, 12), (32, 4), (43, 2), (45, 0), (46, 0)
LOG_DIRS, MOVE, FETCH = (35, 4), (34, 1), (1, 12)
TOPIC = 2  # the type of a resource
CLIENT = "logstore-cluster"
SECONDS = 30.0
LATER = "try again later: a controller is being elected, or ZooKeeper does not answer"

Place = tuple[str, int]


class Refusal(NamedTuple):
    """The code of an error, and the broker's message about it."""

    code: ErrorCode
    message: str | None

    def __str__(self) -> str:
        has_news = self.message and self.message != self.code.name
        return f"{self.code.name}: {self.message}" if has_news else self.code.name


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Read `host:port,host:port`. Raises ValueError."""
    found = []
    for one in filter(None, map(str.strip, text.split(","))):
        host, colon, port = one.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise ValueError(f"{one!r} is not of the form HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("there is no HOST:PORT")
    return found


class Asked:
    """A client of a cluster. Use it in a `with` block."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        seconds: float = SECONDS,
        security: PeerSecurity = OPEN,
    ) -> None:
        """Store the arguments; do not connect yet.

        Args:
            servers: brokers of the cluster. It is enough if one of `servers` answers.
            seconds: the longest wait for each answer.
            security: the way to connect and to log in.
        """
        self._servers, self._seconds, self._security = servers, seconds, security
        self._connections: dict[tuple[str, int], PeerConnection] = {}

    def metadata(self, topics: Sequence[str] | None = None) -> Any:
        """Ask for all brokers, and for the partitions of some topics; None means all topics.

        Raises:
            PeerError: no server answers; the error names all servers.
        """
        named = None
        if topics is not None:
            named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        asked = m.MetadataRequest(topics=named, allow_auto_topic_creation=False)
        failures = []
        for server in self._servers:
            try:
                return self._ask(server, METADATA, asked)
            except PeerError as error:
                failures.append(self._hinted(error))
        if len(failures) == 1:
            raise failures[0]
        reasons: dict[str, list[str]] = {}
        for one in failures:
            reasons.setdefault(one.reason, []).append(one.address)
        told = "; ".join(f"{', '.join(where)}: {reason}" for reason, where in reasons.items())
        raise PeerRefusalError(address="no broker answers", reason=told) from failures[-1]

    def hidden(self, metadata: Any, names: Iterable[str]) -> list[str]:
        """Return topics that the metadata lacks because this client is not allowed to see them."""
        known = {topic.name for topic in metadata.topics}
        unknown = sorted(set(names) - known)
        if not unknown:
            return []
        topic = m.MetadataRequest.MetadataRequestTopic
        rows = [topic(name=name) for name in unknown]
        asked = m.MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        answer = self._ask(self._anyone(metadata), METADATA, asked)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [one.name for one in answer.topics if one.error_code == refused]

    def setting(self, metadata: Any, key: str) -> Mapping[str, str]:
        """Ask for a setting of each topic. Leave out topics that were deleted just now."""
        names = [topic.name for topic in metadata.topics]
        if not names:
            return {}
        resource = m.DescribeConfigsRequest.DescribeConfigsResource
        asked = m.DescribeConfigsRequest([resource(TOPIC, name, [key]) for name in names])
        answer = self._ask(self._anyone(metadata), CONFIGS, asked)
        return {
            one.resource_name: config.value
            for one in answer.results
            for config in one.configs
            if not one.error_code and config.name == key
        }

    def elect(
        self, metadata: Any, places: Sequence[Place] | None, kind: int
    ) -> dict[Place, Refusal]:
        """Elect leaders of these partitions; None means all partitions."""
        one = m.ElectLeadersRequest.TopicPartitions
        topics = None
        if places is not None:
            topics = [one(name, numbers) for name, numbers in _by_topic(places).items()]
        asked = m.ElectLeadersRequest(kind, topics, self._wait_ms)
        answer = self._ask(self._controller(metadata), ELECT, asked)
        self._check(answer)
        return {
            (topic.topic, row.partition_id): Refusal(ErrorCode(row.error_code), row.error_message)
            for topic in answer.replica_election_results
            for row in topic.partition_result
        }

    def reassign(
        self, metadata: Any, wanted: Mapping[Place, Sequence[int] | None]
    ) -> dict[Place, Refusal]:
        """Begin reassignments. None cancels the reassignment of a partition."""
        request = m.AlterPartitionReassignmentsRequest
        topics = [
            request.ReassignableTopic(
                name,
                [request.ReassignablePartition(one, wanted[name, one]) for one in numbers],
            )
            for name, numbers in _by_topic(wanted).items()
        ]
        asked = request(timeout_ms=self._wait_ms, topics=topics)
        answer = self._ask(self._controller(metadata), REASSIGN, asked)
        self._check(answer)
        return {
            (topic.name, row.partition_index): Refusal(ErrorCode(row.error_code), row.error_message)
            for topic in answer.responses
            for row in topic.partitions
        }

    def reassignments(self, metadata: Any) -> dict[Place, Any]:
        """List the running reassignments, with `adding_replicas` and `removing_replicas`."""
        asked = m.ListPartitionReassignmentsRequest(timeout_ms=self._wait_ms)
        answer = self._ask(self._controller(metadata), REASSIGNMENTS, asked)
        self._check(answer)
        return {
            (topic.name, row.partition_index): row
            for topic in answer.topics
            for row in topic.partitions
        }

    def log_dirs(self, broker: Any, places: Sequence[Place] | None = None) -> Sequence[Any]:
        """Ask a broker that the metadata lists for its log dirs, and for the replicas in them.

        Args:
            places: the partitions whose replicas are wanted; None means all partitions.
        """
        topics = None
        if places is not None:
            one = m.DescribeLogDirsRequest.DescribableLogDirTopic
            topics = [one(name, numbers) for name, numbers in _by_topic(places).items()]
        asked = m.DescribeLogDirsRequest(topics=topics)
        answer = self._ask((broker.host, broker.port), LOG_DIRS, asked)
        self._check(answer, f"broker {broker.node_id}")
        rows: Sequence[Any] = answer.results
        return rows

    def move_replicas(self, broker: Any, paths: Mapping[Place, str]) -> dict[Place, ErrorCode]:
        """Ask a broker that the metadata lists to move its replicas to these log dirs."""
        request = m.AlterReplicaLogDirsRequest
        places: dict[str, list[Place]] = {}
        for place, path in paths.items():
            places.setdefault(path, []).append(place)
        asked = request([
            request.AlterReplicaLogDir(
                path,
                [request.AlterReplicaLogDirTopic(*one) for one in _by_topic(some).items()],
            )
            for path, some in places.items()
        ])  # fmt: skip
        answer = self._ask((broker.host, broker.port), MOVE, asked)
        return {
            (topic.topic_name, row.partition_index): ErrorCode(row.error_code)
            for topic in answer.results
            for row in topic.partitions
        }

    def fetch(self, broker: Any, request: Any) -> Any:
        """Fetch from a broker that the metadata lists, even if the broker is a follower."""
        return self.ask(broker, FETCH, request)

    def ask(self, broker: Any, api: tuple[int, int], request: Any) -> Any:
        """Send a request to a broker that the metadata lists. Raises PeerError."""
        return self._ask((broker.host, broker.port), api, request)

    @property
    def _wait_ms(self) -> int:
        """Return the time limit for a broker: half of the time that this client waits."""
        return int(self._seconds * 500)

    def _anyone(self, metadata: Any) -> tuple[str, int]:
        """Return the address of the broker that answered last."""
        asked = next(reversed(self._connections), None)
        return asked or self._controller(metadata)

    def _controller(self, metadata: Any) -> tuple[str, int]:
        for one in metadata.brokers:
            if one.node_id == metadata.controller_id:
                return one.host, one.port
        raise PeerRefusalError(address="the cluster", reason=f"no controller is known; {LATER}")

    def _hinted(self, error: PeerError) -> PeerError:
        """Say that a listener may need TLS or a login, if this client uses neither."""
        if self._security is OPEN and error.reason.endswith("closed the connection"):
            hint = "; perhaps this listener needs TLS or a login (--command-config)"
            return PeerError(address=error.address, reason=error.reason + hint)
        return error

    def _check(self, answer: Any, address: str = "the controller") -> None:
        """If a whole request was refused, raise PeerError."""
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            told = str(Refusal(code, getattr(answer, "error_message", None)))
            if code == ErrorCode.NOT_CONTROLLER:
                told += f"; {LATER}"
            raise PeerRefusalError(address=address, reason=told)

    def _ask(self, server: tuple[str, int], api: tuple[int, int], asked: Any) -> Any:
        connection = self._connections.pop(server, None) or PeerConnection(
            lambda: server, CLIENT, security=self._security
        )
        # the last server of `_connections` was asked last
        self._connections[server] = connection
        try:
            return connection.ask(*api, asked, self._seconds)
        except PeerError:
            del self._connections[server]
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.close()


def _by_topic(places: Sequence[Place] | Mapping[Place, Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, number in places:
        found.setdefault(name, []).append(number)
    return found
