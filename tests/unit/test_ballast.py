"""Test the space that a log dir keeps in reserve."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from logstore.disk import ballast as module
from logstore.disk import files
from logstore.disk.ballast import BALLAST_NAME, Ballast
from support.interrupts import InterruptAt
from support.small_ballast import REAL_BLOCK_BYTES as BLOCK_BYTES
from support.small_ballast import REAL_BYTES as BALLAST_BYTES


@pytest.fixture(autouse=True)
def real_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the real size of the ballast; other tests use a smaller one."""
    monkeypatch.setattr(module, "BALLAST_BYTES", BALLAST_BYTES)
    monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK_BYTES)


@pytest.fixture
def ballast(tmp_path: Path) -> Ballast:
    """Return a ballast that is on the disk."""
    kept = Ballast(str(tmp_path))
    kept.keep()
    return kept


class Work:
    """Work that finds no room until the ballast is removed."""

    def __init__(self, ballast: Ballast, code: int = errno.ENOSPC) -> None:
        self.path, self.code, self.tries = ballast.path, code, 0

    def __call__(self) -> str:
        self.tries += 1
        if os.path.exists(self.path):
            raise OSError(self.code, os.strerror(self.code), "what is written")
        return "done"


def test_it_is_whole_and_cannot_be_compressed(ballast: Ballast) -> None:
    """On a file system that compresses, a file of zeros would reserve no space."""
    import zlib

    data = Path(ballast.path).read_bytes()
    assert len(data) == BALLAST_BYTES
    assert len(zlib.compress(data[:BLOCK_BYTES])) > BLOCK_BYTES
    assert Path(ballast.path).name == BALLAST_NAME


def test_work_that_has_room_leaves_it_alone(ballast: Ballast) -> None:
    """The ballast is only for a full disk."""
    before = os.stat(ballast.path).st_ino
    assert ballast.use(lambda: 7) == 7
    assert os.stat(ballast.path).st_ino == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_work_without_room_is_done_in_its_place(ballast: Ballast, code: int) -> None:
    """When there is room again, the ballast is written again."""
    work = Work(ballast, code)
    assert ballast.use(work) == "done"
    assert work.tries == 2
    assert os.path.getsize(ballast.path) == BALLAST_BYTES


@pytest.mark.parametrize("code", [errno.EIO, errno.EFBIG, errno.EMFILE])
def test_what_space_does_not_help_is_not_repeated(ballast: Ballast, code: int) -> None:
    """A limit of the process, or a bad disk, does not count as a full disk."""
    work = Work(ballast, code)
    with pytest.raises(OSError, match="what is written"):
        ballast.use(work)
    assert work.tries == 1 and os.path.exists(ballast.path)


def test_a_failed_sync_is_not_repeated(ballast: Ballast) -> None:
    """This holds for any errno, because the next sync would report success (R6)."""

    def sync() -> None:
        raise files.SyncError(errno.ENOSPC, "no room", "file")

    with pytest.raises(files.SyncError):
        ballast.use(sync)
    assert os.path.exists(ballast.path)


def test_without_it_work_is_tried_once(tmp_path: Path) -> None:
    """Without a ballast, nothing can be freed."""
    tries = []

    def work() -> None:
        tries.append(1)
        raise OSError(errno.ENOSPC, "no room", "file")

    with pytest.raises(OSError, match="no room"):
        Ballast(str(tmp_path)).use(work)
    assert len(tries) == 1


def test_work_inside_work_gives_it_away_each_time(ballast: Ballast) -> None:
    """The inner work writes the ballast again, so the outer work must remove it once more."""
    inner, outer = Work(ballast), Work(ballast)

    def both() -> str:
        assert ballast.use(inner) == "done"
        return outer()

    assert ballast.use(both) == "done"
    assert (inner.tries, outer.tries) == (3, 2)
    assert os.path.exists(ballast.path)


def test_two_threads_without_room_both_try_again(ballast: Ballast) -> None:
    """The second thread finds the ballast removed, and has room, too."""
    met = threading.Barrier(2, timeout=10)
    done: list[str] = []

    def work(tries: list[int]) -> str:
        tries.append(1)
        if len(tries) == 1:
            met.wait()
            raise OSError(errno.ENOSPC, "no room", "file")
        met.wait()
        return "done"

    def run() -> None:
        tries: list[int] = []
        done.append(ballast.use(lambda: work(tries)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert done == ["done", "done"]


@pytest.mark.parametrize(
    "content", [b"", b"half", b"x" * (BALLAST_BYTES + 1), b"x" * (2 * BALLAST_BYTES - 1)]
)
def test_a_part_of_it_is_replaced(tmp_path: Path, content: bytes) -> None:
    """A crash during the write leaves a part of the ballast."""
    (tmp_path / BALLAST_NAME).write_bytes(content)
    Ballast(str(tmp_path)).keep()
    assert (tmp_path / BALLAST_NAME).stat().st_size == BALLAST_BYTES


def test_a_directory_in_its_place_is_set_aside(tmp_path: Path) -> None:
    """Foreign files are not removed."""
    (tmp_path / BALLAST_NAME).mkdir()
    (tmp_path / BALLAST_NAME / "mine").write_text("stays")
    Ballast(str(tmp_path)).keep()
    assert (tmp_path / BALLAST_NAME).stat().st_size == BALLAST_BYTES
    assert [path.read_text() for path in tmp_path.glob("*.quarantine/mine")] == ["stays"]


def test_a_disk_with_little_room_has_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is removed when room is needed, and completed when there is room."""
    room, pwritev = [5000], files.pwritev

    def write(fd: int, buffers: list[bytes], position: int) -> int:
        if position >= room[0]:
            raise OSError(errno.ENOSPC, "no room", "ballast")
        return pwritev(fd, [b"".join(buffers)[: room[0] - position]], position)

    monkeypatch.setattr(files, "pwritev", write)
    ballast = Ballast(str(tmp_path))
    ballast.keep()
    assert os.path.getsize(ballast.path) == 5000
    work = Work(ballast)
    assert ballast.use(work) == "done"
    assert os.path.getsize(ballast.path) == 5000
    room[0] = BALLAST_BYTES
    ballast.keep()
    assert os.path.getsize(ballast.path) == BALLAST_BYTES


def test_a_bad_disk_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad disk does not count as a full disk."""

    def write(*_: object) -> int:
        raise OSError(errno.EIO, "bad", "ballast")

    monkeypatch.setattr(files, "pwritev", write)
    with pytest.raises(OSError, match="bad"):
        Ballast(str(tmp_path)).keep()


def test_regression_no_thread_removes_what_another_one_writes(tmp_path: Path) -> None:
    """Two threads on a full disk lost the ballast: one removed the file that the other wrote."""
    ballast = Ballast(str(tmp_path))
    ballast.keep()
    began, go_on = threading.Event(), threading.Event()
    real = files.sync_file

    def slow(fd: int) -> None:
        began.set()
        assert go_on.wait(10)
        real(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync_file", slow)
        writer = threading.Thread(target=ballast.use, args=[Work(ballast)])
        writer.start()
        assert began.wait(10)
        other = Work(ballast)
        second = threading.Thread(target=ballast.use, args=[other])
        second.start()
        go_on.set()
        writer.join(10)
        second.join(10)
    assert other.tries in (1, 2)
    assert os.path.getsize(ballast.path) == BALLAST_BYTES and not ballast.missing_bytes


def test_what_is_missing_of_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records do not get the missing space; the existing part is never written twice."""
    ballast, blocks = Ballast(str(tmp_path)), BALLAST_BYTES // BLOCK_BYTES
    room, real = [3], files.write_fully

    def write(fd: int, buffers: list[bytes], position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "no room")
        room[0] -= 1
        return real(fd, buffers, position)

    monkeypatch.setattr(files, "write_fully", write)
    assert ballast.missing_bytes == BALLAST_BYTES
    ballast.keep()
    assert ballast.missing_bytes == (blocks - 3) * BLOCK_BYTES
    room[0] = 2
    ballast.keep()
    assert ballast.missing_bytes == (blocks - 5) * BLOCK_BYTES == BALLAST_BYTES - 5 * BLOCK_BYTES
    room[0] = blocks
    ballast.keep()
    assert ballast.missing_bytes == 0 and room[0] == 5


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_regression_a_file_of_no_use_takes_no_log_dir_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """An immutable file, or a file of another owner, causes one warning."""
    warnings: list[str] = []
    ballast = Ballast(str(tmp_path), warnings=warnings)

    def refuse(path: str) -> int:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(files, "replace_file", refuse)
    ballast.keep()
    ballast.keep()
    assert len(warnings) == 1 and errno.errorcode[code] in warnings[0]


def test_a_disk_that_fails_is_no_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the disk is raised."""

    def fail(fd: int) -> None:
        raise files.SyncError(errno.EIO, "broken")

    monkeypatch.setattr(files, "sync_file", fail)
    with pytest.raises(files.SyncError):
        Ballast(str(tmp_path)).keep()


def test_regression_nobody_fills_it_while_its_room_is_used(ballast: Ballast) -> None:
    """An append that was retried took the room that other work needed to free space."""
    tries = []

    def work() -> str:
        tries.append(os.path.exists(ballast.path))
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        ballast.keep()  # as another thread may
        assert not os.path.exists(ballast.path)
        return "done"

    assert ballast.use(work) == "done"
    assert tries == [True, False]
    assert os.path.getsize(ballast.path) == BALLAST_BYTES


def test_regression_an_interrupt_leaves_the_ballast_to_be_filled_again(tmp_path: Path) -> None:
    """The ballast counted as in use forever, so the next full disk could not be emptied."""
    number, was_hit = 0, True
    while was_hit:
        number += 1
        kept = Ballast(str(tmp_path))
        kept.keep()
        interrupt = InterruptAt(number, module)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            kept.use(Work(kept))
        was_hit = interrupt.was_hit
        kept.keep()
        assert os.path.getsize(kept.path) == BALLAST_BYTES, f"after an interrupt at line {number}"
    assert number > 20
