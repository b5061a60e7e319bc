"""A log dir that failed keeps no file open, without help of the garbage collector."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogDirOfflineError, LogStore, LogStoreError
from logstore.disk import files, gates
from logstore.disk.calls import call as registered
from logstore.disk.gates import Change, LetGoError, gate_of
from support.bad_disk import failing
from support.inside import failure_threads

CALLS = ("pwrite", "pwritev", "fdatasync", "pread", "open_file")


@pytest.fixture(autouse=True, scope="module")
def no_collector() -> Iterator[None]:
    """Switch the collector off, so that reference cycles live as long as in a large process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(under: str) -> list[str]:
    """List the files of a directory that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(under)]


def many_durable(log: Log) -> None:
    """Append from several threads at once, so that the commits are grouped."""

    def work() -> None:
        for _ in range(3):
            with contextlib.suppress(LogStoreError):
                log.append(b"x" * 100, durable=True)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


USES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(b"x"),
    "durable append": lambda log: log.append(b"x", durable=True),
    "grouped appends": many_durable,
    "batch": lambda log: log.extend([b"x"] * 100),
    "roll": lambda log: [log.append(b"x" * 1000) for _ in range(100)],
    "flush": lambda log: log.flush(),
    "point read": lambda log: log[1],
    "scan": list,
    "truncate": lambda log: log.truncate_to(5),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("call", CALLS)
def test_regression_a_failed_log_dir_lets_go_at_once(tmp_path: Path, use: str, call: str) -> None:
    """No error may keep itself, and a descriptor, alive through its stack frames."""
    heard = threading.Event()
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    with LogStore.open(dirs, on_log_dir_failure=lambda error: heard.set()) as store:
        log = store.create("orders", 0, log_dir=dirs[0], config=LogConfig(segment_bytes=16 << 10))
        log.extend([b"x" * 100] * 10)
        log.flush()
        log.append(b"waits for a flush")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, call, failing(call, dirs[0], errno.EIO))
            with contextlib.suppress(LogDirOfflineError):
                USES[use](log)
            if not store.metrics().OfflineLogDirectoryCount:
                return  # this use makes no such call
        heard.wait()
        for thread in list(failure_threads(store)):
            thread.join()
        assert held(dirs[0]) == []


def remove(store: LogStore, path: str) -> None:
    store.remove_dir(path, lost=True)


def close(store: LogStore, path: str) -> None:
    store.close()


ENDS = [remove, close]


def let_in(path: str) -> bool:
    """Make a plain call below a log dir; False if this process may not change it."""
    try:
        files.mkdir(os.path.join(path, f"new{len(os.listdir(path))}"))
    except LetGoError as error:
        assert "reopen the log dir" in str(error)
        return False
    return True


@pytest.mark.parametrize("end", ENDS)
def test_regression_an_idle_log_dir_of_no_store_may_be_written(
    tmp_path: Path, end: Callable[[LogStore, str], None]
) -> None:
    """After the dir was taken offline and removed, its gate stayed closed in this process."""
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    store = LogStore.open(dirs)
    store.take_offline(dirs[1])
    assert not let_in(dirs[1])
    end(store, dirs[1])
    assert let_in(dirs[1])
    store.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["changes", "reads"])
def test_a_call_under_way_keeps_the_gate_shut(
    tmp_path: Path, end: Callable[[LogStore, str], None], kind: str
) -> None:
    """A thread that hangs there takes no further step; the gate is forgotten when it returns."""
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    store = LogStore.open(dirs)
    gate = gate_of(os.path.join(dirs[1], "x"))
    assert gate is not None
    with Change(gate) if kind == "changes" else registered(dirs[1]):
        store.take_offline(dirs[1])
        end(store, dirs[1])
        assert not let_in(dirs[1])
    assert let_in(dirs[1])
    store.close()


def test_regression_a_descriptor_without_memory_to_record_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor stayed open until the process ended."""

    class Full(dict[int, object]):
        def __setitem__(self, fd: int, opened: object) -> None:
            raise MemoryError

    with LogStore.open(tmp_path, admin_socket=False) as store:
        path = str(Path(store.create("orders", 0).directory) / "new")
        with monkeypatch.context() as patch:
            patch.setattr(gates, "_of_fd", Full(gates._of_fd))
            with pytest.raises(MemoryError):
                files.open_file(path, files.REPLACE)
        assert path not in held(str(tmp_path))
