"""Hold the parts of the broker that all handlers use."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.catalog.dynamic_settings import DynamicSettings
from broker.catalog.leadership import SoleBroker
from broker.catalog.producer_ids import ProducerIds
from broker.catalog.topics import TopicCatalog
from broker.config import BrokerConfig
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.upkeep import OffsetUpkeep
from broker.groups.group import GroupSettings
from broker.machines.exchange import Answer, Client, Scheduler
from broker.machines.fetch_sessions import FetchSessions
from broker.machines.traffic import Traffic
from broker.wire.frames import Request, encode_response
from broker.wire.versions import ApiVersions
from logstore import LogStore

MILESTONES = ("base", "groups", "admin")
MS = 1000


class Services:
    """The parts of one broker.

    Threads: `sessions_lock` guards `sessions`. The other parts have locks of their own.
    """

    def __init__(
        self,
        store: LogStore,
        config: BrokerConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.apis = ApiVersions(MILESTONES)
        self.leadership = SoleBroker(store.broker_id, store.cluster_id)
        self.topics = TopicCatalog(store)
        self.producer_ids = ProducerIds(store)
        self.traffic = Traffic()
        self.settings = DynamicSettings(store, config.num_replica_alter_log_dirs_threads)
        self.groups = GroupCoordinator(
            self.topics,
            GroupSettings(config.group_initial_rebalance_delay_ms / MS, config.group_max_size),
            partitions=config.offsets_topic_num_partitions,
            groups_max=config.max_groups_per_partition,
            clock=clock,
        )
        self.upkeep = OffsetUpkeep(
            self.groups,
            config.offsets_retention_minutes * 60.0,
            config.offsets_retention_check_interval_ms / MS,
        )
        draw = random.SystemRandom()
        self.sessions_lock = threading.Lock()
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, lambda: draw.randrange(1, 2**31)
        )

    def start(self, scheduler: Scheduler) -> None:
        """Begin the work that needs no request, such as moves and the loading of groups."""
        self.topics.start()
        self.settings.start()
        self.groups.start(scheduler)
        self.upkeep.start(scheduler)

    def close(self) -> None:
        """Stop listening to the store."""
        self.topics.close()
        self.producer_ids.close()


class Call(NamedTuple):
    """Hold one request for a handler, with the services and the client."""

    services: Services
    request: Request
    client: Client

    def answer(self, message: Any) -> Answer:
        """Encode the response."""
        request = self.request
        return [encode_response(request.key, request.version, request.correlation_id, message)]
