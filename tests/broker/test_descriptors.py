"""A process with few descriptors still serves all partitions, and accepts new clients."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.net.descriptors import CACHED_MIN, fit
from logstore.disk import spare
from logstore.log.segments.cache import Cache
from support.broker_process import SERVE
from support.kafka_client import KafkaClient, batch_of, values_in
from support.places import environment

PARTITIONS = 120
FILES_MAX = 220  # fewer than two for each partition


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *command], env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            child.kill()


def test_regression_caches_give_descriptors_back(tmp_path: Path) -> None:
    """Reads of the last partitions got error 56 for ever, and nobody could connect."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES_MAX},) * 2)\n"
    with running("-c", limit + SERVE, str(tmp_path)) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        with KafkaClient(address) as client:
            client.create("t", PARTITIONS)
            for number in range(PARTITIONS):
                assert client.produce("t", batch_of(b"%d" % number), number).error_code == 0
            for number in range(PARTITIONS):
                row = client.fetch("t", 0, number)
                assert row.error_code == 0, number
                assert values_in(row.records) == [b"%d" % number]
        with ExitStack() as connected:
            for _ in range(50):
                client = connected.enter_context(KafkaClient(address))
                assert not client.call("ApiVersions", 0).error_code


def test_the_command_raises_the_soft_limit(tmp_path: Path) -> None:
    """To the hard limit; it warns, and caches less, if that is small, too."""
    hard = 400
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, {hard}))\n"
        "import sys; from logstore.cli.app import app; app(sys.argv[1:])"
    )
    options = ("broker", "--log-dirs", str(tmp_path), "--listeners", "PLAINTEXT://127.0.0.1:0")
    with running("-c", code, *options) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline().startswith("serving 0 partitions")
        assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        child.send_signal(signal.SIGTERM)
        said = child.stderr.read()
        assert child.wait(20) == 0
    assert f"may open only {hard} files, so the store keeps 72 segment files open" in said


@pytest.mark.parametrize(("limit", "cached"), [(1280, 512), (1278, 511), (64, CACHED_MIN)])
def test_a_small_limit_makes_the_cache_smaller(limit: int, cached: int) -> None:
    """So that written segments and clients fit, too."""
    found = fit(limit, 512)
    assert found.cached_files_max == cached
    assert ("LimitNOFILE" in found.warning) is (cached < 512)


def test_a_shortage_closes_half_of_the_cached_files() -> None:
    """Then the work is done again, until it succeeds or no file is cached."""
    cache, home = Cache(10), dict[Any, Any]()
    for number in range(5):
        cache.put(home, number, number, 1)
    spare.share(cache)
    tries = []

    def work() -> int:
        tries.append(len(home))
        if home:
            _fail(errno.EMFILE)
        return 7

    assert spare.relieved(work) == 7 and tries == [5, 2, 1, 0]
    cache.put(home, 9, 9, 1)
    assert cache.weight == 1 and [cache.shed(), cache.shed()] == [1, 0]
    with pytest.raises(OSError, match="no file"):
        spare.relieved(lambda: _fail(errno.EMFILE))


def _fail(number: int) -> None:
    raise OSError(number, "no file")


def test_other_errors_close_nothing() -> None:
    """A disk that fails gets no second call."""
    calls = []

    def work() -> None:
        calls.append(1)
        raise OSError(errno.EIO, "x")

    with pytest.raises(OSError, match="x"):
        spare.relieved(work)
    assert calls == [1]
