"""Live through random histories in which one log dir of three is rolled back to a copy of it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from logstore import LogStore
from logstore.disk import files
from logstore.disk.documents.generations import GENERATION_NAME, WITNESS_NAME
from logstore.errors import LogStoreError, ReplicaIncompleteError, ReplicaOfflineError
from support.hanging import QUIET
from support.inside import abandon, keepers_of

HISTORIES = int(os.environ.get("LOGSTORE_OLD_COPY_HISTORIES", "12"))
STEPS = 40
TOPICS = ("orders", "payments")

Content = tuple[tuple[int, bytes], ...]


class Killed(BaseException):
    """The process ends here."""


class Copy(NamedTuple):
    """A copy of the log dir: where it is, what it holds, and how often others had seen it by then.

    Attributes:
        ends: as in `History`.
    """

    path: str
    content: dict[str, Content]
    witnessed: int
    ends: dict[str, tuple[int, int]]


class History:
    """One store, one log dir of it that is copied and restored, and what must be in it.

    Attributes:
        truth: what the log dir's replicas hold; all of it was acknowledged.
        witnessed: how many generations of the log dir others have seen.
        is_news: whether a replica changed since then.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.dirs = [str(root / name) for name in "abc"]
        self.root, self.count, self.number = root, 0, 0
        self.truth: dict[str, Content] = {}
        self.incarnations: dict[str, int] = {}
        self.created = 0
        self.witnessed, self.is_news = 0, False
        self.copies: list[Copy] = []
        self.alarms = self.excused = 0
        self.store = self.opened()
        for topic in TOPICS:
            self.create(topic)

    @property
    def ends(self) -> dict[str, tuple[int, int]]:
        """Which replica of its name each is, and where it ends."""
        return {
            topic: (self.incarnations[topic], rows[-1][0] + 1 if rows else 0)
            for topic, rows in self.truth.items()
        }

    @property
    def dir(self) -> str:
        return self.dirs[1]

    def opened(self) -> LogStore:
        store = LogStore.open(self.dirs, config=QUIET, admin_socket=False)
        self.witnessed, self.is_news = self.witnessed + 1, False
        return store

    # --- what its users do ------------------------------------------------------------------------

    def create(self, topic: str) -> None:
        self.store.create(topic, 0, log_dir=self.dir)
        self.truth[topic], self.is_news = (), True
        self.created += 1
        self.incarnations[topic] = self.created

    def append(self, topic: str) -> None:
        values = []
        for _ in range(self.random.randint(1, 3)):
            self.number += 1
            values.append(b"%d" % self.number)
        log = self.store.log(topic, 0)
        first = log.extend(values)
        log.flush()
        start = log.log_end_offset - len(values)
        assert first is not None
        self.truth[topic] += tuple((start + n, value) for n, value in enumerate(values))
        self.is_news = True

    def truncate(self, topic: str) -> None:
        log = self.store.log(topic, 0)
        offset = self.random.randint(log.log_start_offset, log.log_end_offset)
        if offset < log.log_end_offset:
            self.is_news = True
        log.truncate_to(offset)
        self.truth[topic] = tuple(row for row in self.truth[topic] if row[0] < offset)

    def delete(self, topic: str) -> None:
        self.store.delete(topic, 0)
        self.create(topic)

    # --- what its operator does -------------------------------------------------------------------

    def checkpoint(self) -> None:
        keepers = keepers_of(self.store)
        before = self.store.host.replicas.dir_of(self.dir).generation.current
        keepers[self.dir].checkpoint()
        for path in (self.dirs[0], self.dirs[2]):
            keepers[path].checkpoint()
        if self.store.host.replicas.dir_of(self.dir).generation.current != before:
            self.witnessed, self.is_news = self.witnessed + 1, False

    def copy(self) -> None:
        self.count += 1
        path = str(self.root / f"copy{self.count}")
        shutil.copytree(self.dir, path)
        self.copies.append(Copy(path, dict(self.truth), self.witnessed, self.ends))

    def stop(self) -> None:
        """Close the store in order, or kill it."""
        if self.random.random() < 0.5:
            abandon(self.store)
            return
        self.store.close()
        self.witnessed, self.is_news = self.witnessed + 1, False

    def start(self) -> None:
        """Start, killed at times at a rename of the files of generations."""
        while self.random.random() < 0.4:
            name = self.random.choice([GENERATION_NAME, WITNESS_NAME])
            with pytest.MonkeyPatch.context() as patch:
                kill_at(patch, name, self.random.randint(0, 3))
                try:
                    store = LogStore.open(self.dirs, config=QUIET, admin_socket=False)
                except Killed:
                    continue
                abandon(store)
                self.witnessed, self.is_news = self.witnessed + 1, False
        self.store = self.opened()

    def restart(self) -> None:
        self.stop()
        self.start()
        self.judge_sound()

    def away(self) -> None:
        """Start without the log dir, then with it again: that is no alarm."""
        self.stop()
        os.rename(self.dir, f"{self.dir}.away")
        self.dirs.remove(self.dir)
        with LogStore.open(self.dirs, config=QUIET, admin_socket=False):
            pass
        self.dirs.insert(1, str(self.root / "b"))
        os.rename(f"{self.dir}.away", self.dir)
        self.start()
        self.judge_sound()

    def roll_back(self) -> None:
        """Put an old copy into the log dir's place, beside a running store or not."""
        if not self.copies:
            return
        copy = self.random.choice(self.copies)
        right = f"{self.dir}.right"
        is_beside = self.random.random() < 0.5
        is_short = False
        if not is_beside:
            self.stop()
        elif self.random.random() < 0.5:
            self.store.take_offline(self.dir)
            self.witnessed += 1
        else:  # its disk failed: what this process has in memory is all that is known
            self.store.host.replicas.dir_of(self.dir).take_offline("its disk failed")
            is_short = any(self.ends[topic] > copy.ends[topic] for topic in TOPICS)
        must_tell = is_short or copy.witnessed < self.witnessed
        os.rename(self.dir, right)
        shutil.copytree(copy.path, self.dir)
        if is_beside:
            self.store.reopen_dir(self.dir)
        else:
            self.start()
        is_told = "old copy" in str(self.reason())
        assert is_told or not must_tell, (copy, self.witnessed)
        if is_told:
            self.alarms += 1
            self.judge_doubtful(copy)
        else:
            self.excused += copy.content != self.truth
        if is_told and self.random.random() < 0.5:
            self.bring_back(right)
            return
        shutil.rmtree(right)
        if is_told:
            self.settle(copy)
        self.truth = dict(copy.content)
        self.incarnations = {topic: number for topic, (number, _) in copy.ends.items()}
        self.judge_sound()

    def reason(self) -> str | None:
        return self.store.describe_dirs(log_dirs=[self.dir]).log_dirs[0].reason

    def bring_back(self, right: str) -> None:
        """Mount the right disk again: all is well."""
        self.store.take_offline(self.dir)
        shutil.rmtree(self.dir)
        os.rename(right, self.dir)
        self.store.reopen_dir(self.dir)
        self.witnessed += 1
        self.judge_sound()

    def settle(self, copy: Copy) -> None:
        """Take what is left for whole, replica by replica, with a restart among them."""
        topics = [topic for topic in TOPICS if not self.is_writable(topic)]
        self.random.shuffle(topics)
        assert topics
        for topic in topics:
            if self.random.random() < 0.3:
                self.stop()
                self.start()
                assert "old copy" in str(self.reason())
                assert not self.is_writable(topic)
            self.store.promote(topic, 0)
            self.truth[topic] = copy.content[topic]
            assert self.is_writable(topic)
        assert self.reason() is None
        self.witnessed += 1

    # --- the judge --------------------------------------------------------------------------------

    def is_writable(self, topic: str) -> bool:
        try:
            self.store.log(topic, 0).flush()
        except (ReplicaIncompleteError, ReplicaOfflineError):
            return False
        return True

    def content(self, topic: str) -> Content:
        return tuple((record.offset, record.value or b"") for record in self.store.log(topic, 0))

    def judge_sound(self) -> None:
        assert self.reason() is None
        for topic in TOPICS:
            assert self.content(topic) == self.truth[topic]
            assert self.is_writable(topic)

    def judge_doubtful(self, copy: Copy) -> None:
        """Whatever differs from what was acknowledged is readable as it is, and not writable."""
        for topic in TOPICS:
            assert self.content(topic) == copy.content[topic]
            if copy.content[topic] != self.truth[topic]:
                assert not self.is_writable(topic), topic

    def step(self) -> None:
        topic = self.random.choice(TOPICS)
        steps: list[tuple[int, Callable[[], None]]] = [
            (10, lambda: self.append(topic)),
            (2, lambda: self.truncate(topic)),
            (1, lambda: self.delete(topic)),
            (4, self.checkpoint),
            (4, self.copy),
            (3, self.restart),
            (1, self.away),
            (4, self.roll_back),
        ]
        self.random.choices([one for _, one in steps], [weight for weight, _ in steps])[0]()


def kill_at(patch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """End the process at the n-th rename of a file of some name, and at each later one."""
    real, count = files.rename, 0

    def rename(source: str, target: str) -> None:
        nonlocal count
        if os.path.basename(target) == name:
            if count >= number:
                raise Killed
            count += 1
        real(source, target)

    patch.setattr(files, "rename", rename)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_old_copy_is_served_as_the_log_dir_itself(tmp_path: Path, seed: int) -> None:
    """Nothing else raises an alarm; restarts, kills and days without the log dir do not."""
    print(f"seed {seed}")
    history = History(tmp_path, seed)
    try:
        for _ in range(STEPS):
            history.step()
    finally:
        try:
            history.store.close()
        except LogStoreError:
            abandon(history.store)


def test_the_histories_do_roll_back(tmp_path: Path) -> None:
    """A generator that never restores an old copy would prove nothing."""
    alarms = 0
    for seed in range(3):
        history = History(tmp_path / str(seed), seed)
        for _ in range(STEPS):
            history.step()
        history.store.close()
        alarms += history.alarms
    assert alarms >= 3
