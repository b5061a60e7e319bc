"""Define `Broker`, the main class of this package: it serves a store to Kafka's clients.

    with Broker.start() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The end of the `with` block stops the broker.
"""

from __future__ import annotations

import importlib
import tempfile
import threading
from collections.abc import Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self

from broker.config import BrokerConfig
from broker.listener_config import Endpoint
from broker.machines.request_times import ApiTimes
from broker.machines.traffic import Gauge, TopicTraffic
from broker.net.server import Server
from broker.page.gatherer import Sources
from broker.page.page import Page
from broker.requests.dispatcher import Dispatcher
from broker.requests.services import Services
from broker.secret_files import read_passwords
from broker.security.mechanisms import Directory
from broker.security.passwords import Passwords
from logstore import LogStore, StoreEvent, StoreEventKind

StrPath = str | PathLike[str]
STOP_SECONDS = 10.0
# The time after which the broker assumes that a running request waits for a SUSPECT log dir.
STUCK_SECONDS = 0.1
EXTRA = ("crc32c", "cramjam")


def _demand(name: str, extra: str) -> None:
    """Import a library; raise an ImportError that names the extra if it is missing."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"a broker needs {name}: pip install 'logstore[{extra}]'", name=name
        ) from error


def _passwords(config: BrokerConfig) -> Passwords:
    """If a listener has SASL, read the users of PLAIN, and check that SCRAM can be used."""
    if not any(config.protocol_of(one.name).is_sasl for one in config.endpoints):
        return Passwords([])
    if config.has_scram:
        _demand("scramp", "security")
    if "PLAIN" not in config.mechanisms:
        return Passwords([])
    return Passwords(read_passwords(config.sasl_users_file, "sasl_users_file"))


class Broker:
    """Serve one store to Kafka's clients.

    `Broker.start` makes a broker. Close the broker, or use it in a `with` block.

    Attributes:
        config: the configuration of the broker.
        store: the store that the broker serves. Other code of this process may also use the store
            at the same time.
        bootstrap_servers: the value of `bootstrap.servers` for clients.
    """

    def __init__(
        self,
        store: LogStore,
        config: BrokerConfig,
        *,
        owns_store: bool,
        directory: tempfile.TemporaryDirectory[str] | None = None,
        services: Services | None = None,
    ) -> None:
        """Use `Broker.start` instead. Only a broker of a cluster passes `services`."""
        self.store = store
        self.config = config
        self._owns_store = owns_store
        self._directory = directory
        self._closing = threading.Lock()
        self._is_closed = False
        self._services = Services(store, config) if services is None else services
        try:
            decoys = self._services.decoys
            known = Directory(
                _passwords(config), self._services.users.find, lambda: decoys.decoys, decoys.learn
            )
            self._server = Server(config, Dispatcher(self._services), known)
        except BaseException:
            self._services.close()
            raise
        self._page = self._make_page()
        self._withdraw = store.on_close(self.stop)
        store.add_listener(self._on_event)
        self._services.start(self._server.tasks)
        self._server.start()
        if self._page is not None:
            self._page.start()

    @classmethod
    def start(
        cls,
        log_dirs: StrPath | Iterable[StrPath] | None = None,
        config: BrokerConfig | Mapping[str, Any] | None = None,
        store: LogStore | None = None,
    ) -> Self:
        """Start a broker. When this method returns, clients can connect.

        Args:
            log_dirs: the directories for the records, one for each disk. If None, the broker uses a
                temporary directory, and removes this directory when the broker is closed.
            config: a `BrokerConfig`, or a mapping from its keys to values. By default, the broker
                listens at a free port of 127.0.0.1.
            store: the store that clients use; this process has it open. The store stays open when
                the broker is closed. If the store is closed first, the broker stops.

        Raises:
            ImportError: the extra `broker` is not installed, or SCRAM needs the extra `security`.
            ValueError: a setting is wrong, or a file of certificates or passwords cannot be used.
            OSError: the address of a listener is in use.
            LogStoreError: the store cannot be opened; see `LogStore.open`.
        """
        settings = BrokerConfig.of(config)
        if store is not None and log_dirs is not None:
            raise ValueError("a broker serves either log_dirs or a store that is open, not both")
        for name in EXTRA:
            _demand(name, "broker")
        if store is not None:
            return cls(store, settings, owns_store=False)
        directory = None
        if log_dirs is None:
            directory = tempfile.TemporaryDirectory(prefix="broker-", ignore_cleanup_errors=True)
        try:
            own = LogStore.open(
                directory.name if log_dirs is None and directory is not None else log_dirs or (),
                config=settings.store_config.replace(log_config=settings.log_config),
                admin_socket=directory is None,
            )
            try:
                return cls(own, settings, owns_store=True, directory=directory)
            except BaseException:
                own.close()
                raise
        except BaseException:
            if directory is not None:
                directory.cleanup()
            raise

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Broker {self.bootstrap_servers}{state}>"

    @property
    def bootstrap_servers(self) -> str:
        """The advertised address of each listener, separated by commas."""
        return ",".join(
            str(endpoint).removeprefix(f"{endpoint.name}://") for endpoint in self.endpoints
        )

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The address of each listener, as the broker advertises it."""
        return tuple(listener.endpoint for listener in self._server.listeners)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return self._server.connection_count

    @property
    def running_count(self) -> int:
        """The number of connections whose request is being executed."""
        return self._server.running_count

    @property
    def http_url(self) -> str:
        """The address of the page for operators; "" if there is no page."""
        return "" if self._page is None else self._page.url

    def request_times(self) -> dict[int, ApiTimes]:
        """Return how long the requests of each API have taken. The keys are the API numbers."""
        return self._server.request_times.snapshot()

    def traffic(self) -> dict[str, TopicTraffic]:
        """Return for each topic how much clients have appended and read so far."""
        return self._services.traffic.snapshot()

    def gauges(self) -> Iterable[Gauge]:
        """Return the present values that only a broker of a cluster has."""
        return self._services.gauges()

    def counts(self) -> dict[str, int]:
        """Return the present numbers of connections, threads, groups and partitions."""
        server = self._server
        return {
            "connection_count": server.connection_count,
            "running_count": server.running_count,
            "thread_count": server.thread_count,
            "memory_bytes": server.memory_bytes,
            "group_count": self._services.groups.count,
            "partition_count": len(self.store),
            "handshake_failure_count": server.failures.handshakes,
            "login_failure_count": server.failures.logins,
        }

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Answer the running requests, then close all connections. The store stays open.

        Args:
            timeout: seconds after which connections with an unfinished request are cut.
        """
        with self._closing:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            if self._page is not None:
                self._page.close()
            self.store.remove_listener(self._on_event)
            self._server.stop(timeout)
            self._services.close()

    def close(self, timeout: float = STOP_SECONDS) -> None:
        """Stop serving. If the broker opened the store, close it. A second call does nothing."""
        self.stop(timeout)
        self._withdraw()
        if self._owns_store:
            self.store.close(timeout)
        if self._directory is not None:
            self._directory.cleanup()

    def _make_page(self) -> Page | None:
        """If the page has an address, bind it; raise OSError if the address is in use."""
        endpoint = self.config.http_endpoint
        if endpoint is None:
            return None
        services = self._services
        sources = Sources(
            self.store, services.topics, services.leadership, self.endpoints,
            services.traffic.snapshot, self._server.request_times.snapshot,
            self._server.slow_requests.snapshot, services.groups.loaded, self.counts, services.elr,
        )  # fmt: skip
        try:
            return Page(endpoint, self.config.http_hosts, sources)
        except BaseException:
            self._server.stop(0.0)
            services.close()
            raise

    def _on_event(self, event: StoreEvent) -> None:
        """If a disk hangs, close the connections whose requests wait for this disk.

        The clients connect again at once. If the next request of such a client needs the disk, it
        is refused with KAFKA_STORAGE_ERROR (56).
        """
        if event.kind is StoreEventKind.LOG_DIR_SUSPECT:
            self._server.cut_stuck(STUCK_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
