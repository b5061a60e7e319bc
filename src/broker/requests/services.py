"""Hold what all handlers use."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.catalog.leadership import SoleBroker
from broker.catalog.producer_ids import ProducerIds
from broker.catalog.topics import TopicCatalog
from broker.config import BrokerConfig
from broker.machines.exchange import Answer, Client
from broker.machines.fetch_sessions import FetchSessions
from broker.wire.frames import Request, encode_response
from broker.wire.versions import ApiVersions
from logstore import LogStore

MILESTONES = ("base",)


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
        self.leadership = SoleBroker(store.config.broker_id, store.cluster_id)
        self.topics = TopicCatalog(store)
        self.producer_ids = ProducerIds(store)
        draw = random.SystemRandom()
        self.sessions_lock = threading.Lock()
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, lambda: draw.randrange(1, 2**31)
        )

    def close(self) -> None:
        """Stop listening to the store."""
        self.topics.close()
        self.producer_ids.close()


class Call(NamedTuple):
    """One request for a handler."""

    services: Services
    request: Request
    client: Client

    def answer(self, message: Any) -> Answer:
        """Encode the response."""
        request = self.request
        return [encode_response(request.key, request.version, request.correlation_id, message)]
