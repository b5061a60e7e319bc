"""Define `Page`: it gathers facts, stores the rates of the last hour, and serves both by HTTP.

Threads: `_gathering` is held while facts are gathered or an answer is made. So even if many clients
ask, only one thread at a time works for the page. After its work, the page pauses for nine times as
long, so it uses at most 10 % of one processor. The page uses the same facts for at least one
second, and for longer if the gathering would otherwise use more than 5 % of a processor. During
this time, the page also sends again the answers that it made from these facts.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Self

from broker.listener_config import Endpoint
from broker.page.admission import allowed_names
from broker.page.facts import Facts
from broker.page.gatherer import Gatherer, Sources
from broker.page.history import INTERVAL_SECONDS
from broker.page.http_server import INTERNAL_ERROR, UNAVAILABLE, HttpServer
from broker.page.routes import Response, error, respond

LOG = logging.getLogger("broker")
FRESH_SECONDS = 1.0
GATHERING_SHARE, WORK_SHARE = 0.05, 0.1
ANSWERS_MAX = 16
WAIT_SECONDS = 5.0


class Page:
    """Serve the facts of one broker until it is closed.

    Attributes:
        endpoint: the address of the page.
    """

    def __init__(self, endpoint: Endpoint, hosts: str, sources: Sources) -> None:
        """Bind the address; raise OSError if it is in use.

        Args:
            hosts: further names of this host, separated by commas.
        """
        self._gatherer = Gatherer(sources)
        self._gathering = threading.Lock()
        self._facts: Facts | None = None
        self._fresh_until = self._rest_until = 0.0
        self._answers: dict[str, Response] = {}
        self._is_closed = threading.Event()
        names = allowed_names(endpoint.host, hosts)
        self._server = HttpServer(endpoint, names, self.respond)
        self.endpoint = self._server.endpoint
        self._sampler = threading.Thread(target=self._sample, name="page-history", daemon=True)

    def start(self) -> Self:
        """Begin to take samples, and to answer requests."""
        self._sampler.start()
        self._server.start()
        return self

    def close(self) -> None:
        """Stop serving. A second call does nothing."""
        self._is_closed.set()
        self._server.close()

    @property
    def url(self) -> str:
        """The address of the page for a browser on this machine."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(
            self.endpoint.host, self.endpoint.host
        )
        return f"http://{f'[{host}]' if ':' in host else host}:{self.endpoint.port}/"

    def respond(self, target: str) -> Response:
        """Answer a request."""
        if not self._gathering.acquire(timeout=WAIT_SECONDS):
            return error(UNAVAILABLE, "the page is busy; try again")
        try:
            self._drop_old()
            return self._answers.get(target) or self._make(target)
        except Exception:  # the broker itself continues after a fault of the page
            LOG.exception("the page failed")
            return error(INTERNAL_ERROR, "the page failed; see the broker's log")
        finally:
            self._gathering.release()

    def _make(self, target: str) -> Response:
        """Make an answer. If the page has used its share of the time, wait first.

        The caller must hold the lock.
        """
        self._is_closed.wait(min(max(self._rest_until - time.monotonic(), 0.0), WAIT_SECONDS))
        began = time.monotonic()
        self._drop_old()
        answer = respond(target, self._fresh)
        ended = time.monotonic()
        self._rest_until = ended + (ended - began) * (1 / WORK_SHARE - 1)
        if len(self._answers) < ANSWERS_MAX:
            self._answers[target] = answer
        return answer

    def _drop_old(self) -> None:
        """Forget old facts and their answers. The caller must hold the lock."""
        if time.monotonic() >= self._fresh_until:
            self._facts = None
            self._answers.clear()

    def _fresh(self) -> Facts:
        """Return the facts; gather them if there are none. The caller must hold the lock."""
        if self._facts is None:
            began = time.monotonic()
            self._facts = self._gatherer.gather()
            ended = time.monotonic()
            self._fresh_until = ended + max(FRESH_SECONDS, (ended - began) / GATHERING_SHARE)
        return self._facts

    def _sample(self) -> None:
        while not self._is_closed.is_set():
            with self._gathering:
                self._take_sample()
            self._is_closed.wait(INTERVAL_SECONDS)

    def _take_sample(self) -> None:
        try:
            self._gatherer.sample(time.time())
        except Exception:  # the next sample may succeed
            LOG.exception("the page could not take a sample")
