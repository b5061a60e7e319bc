"""Let log dirs of a coordination store fail, go away and return, in a random order."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from broker.coordination import copies, disk_workers, found_copies
from broker.coordination.copies import Copies
from broker.coordination.embedded import EmbeddedSession, EmbeddedStore
from broker.coordination.errors import CopiesIncompleteError, CopiesOfflineError, CopyForkedError
from broker.coordination.journal import JOURNAL_NAME
from broker.coordination.journal_file import JournalFile
from broker.coordination.members import Membership
from broker.coordination.tree import EmbeddedSettings
from logstore.disk import files
from support.faulty import WRITES, Fault, FaultyFiles, fd_path
from support.places import fast_directory

SETTINGS = EmbeddedSettings(rewrite_bytes_min=600)
EIO = Fault("EIO", errno.EIO, frozenset({"pwrite", "pwritev"}), is_sticky=True)
ROUNDS = int(os.environ.get("LOGSTORE_COORDINATION_ROUNDS", "1000"))


@pytest.fixture
def many() -> Iterator[list[str]]:
    """Make five log dirs."""
    with fast_directory() as base:
        paths = [base / name for name in "abcde"]
        for path in paths:
            path.mkdir()
        yield [str(path) for path in paths]


class DeathError(BaseException):
    """Ends the process, as far as the test goes."""


class Death:
    """Ends the process while a line is written: some log dirs have the line, and others not.

    The disks that are asked for the same line finish it. After that, no thread of the process
    writes anything: each of its writes raises DeathError.
    """

    def __init__(self, without: list[str], lines: int) -> None:
        self._without, self._lines = without, lines
        self._written: dict[JournalFile, int] = {}
        self._lock = threading.Lock()
        self._thread = threading.local()
        self.is_dead = False

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        write, ask, report = JournalFile._write, disk_workers.ask, threading.excepthook

        def write_alive(file: JournalFile, line: bytes, digest: int) -> None:
            self._count(file)
            write(file, line, digest)

        def ask_alive(workers: Any, calls: Mapping[str, Any], seconds: float) -> Any:
            self.check()
            answers = ask(workers, {one: self._begun(calls[one]) for one in calls}, seconds)
            self.check()
            return answers

        def report_alive(args: threading.ExceptHookArgs) -> None:
            if args.exc_type is not DeathError:
                report(args)

        self._replace(JournalFile, "_write", write_alive)
        self._replace(copies, "ask", ask_alive)
        for name in WRITES:
            self._replace(files, name, self._alive(getattr(files, name)))
        self._replace(threading, "excepthook", report_alive)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _replace(self, place: Any, name: str, value: Any) -> None:
        self._stack.callback(setattr, place, name, getattr(place, name))
        setattr(place, name, value)

    def _begun(self, call: Callable[[], object]) -> Callable[[], object]:
        """Let a call finish, even if the process ends meanwhile."""

        def begun() -> object:
            self._thread.has_begun = True
            try:
                return call()
            finally:
                self._thread.has_begun = False

        return begun

    def _count(self, file: JournalFile) -> None:
        """Die at a line."""
        with self._lock:
            self._written[file] = self._written.get(file, 0) + 1
            if os.path.dirname(file.path) in self._without and self._written[file] >= self._lines:
                self.is_dead = True
                raise DeathError

    def _alive(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Let a call be made only while the process lives."""

        def call(*args: Any, **options: Any) -> Any:
            if not getattr(self._thread, "has_begun", False):
                self.check()
            return real(*args, **options)

        return call

    def check(self) -> None:
        """End the calling thread if the process has ended."""
        if self.is_dead:
            raise DeathError


class DeathAtACall(Death):
    """Ends the process before any call that writes, also while a journal is written anew."""

    def __init__(self, without: list[str], calls: int) -> None:
        super().__init__(without, 0)
        self._left = calls

    def _count(self, file: JournalFile) -> None:
        pass

    def _alive(self, real: Callable[..., Any]) -> Callable[..., Any]:
        alive = super()._alive(real)

        def call(first: Any, *args: Any, **options: Any) -> Any:
            path = fd_path(first) if isinstance(first, int) else os.fspath(first)
            if os.path.dirname(path) in self._without:
                with self._lock:
                    self._left -= 1
                    if self._left < 0:
                        self.is_dead = True
                        raise DeathError
            return alive(first, *args, **options)

        return call


class History:
    """Log dirs that fail, go away and come back, and processes that end, in a random order.

    At most half of the log dirs that work fail at once: what happens beyond that is documented.

    Attributes:
        members: the log dirs that the store used last; None if its process ended.
        pending: a change whose process ended before an answer.
    """

    settings, fault = SETTINGS, EIO

    def __init__(self, dirs: list[str], seed: int) -> None:
        self.dirs, self.rng = dirs, random.Random(seed)
        self.acknowledged: list[str] = []
        self.pending: list[str] = []
        self.members: list[str] | None = dirs
        self.opens = self.refusals = self.deaths = self.changes = 0
        self.death = Death([], 0)

    def some(self, dirs: list[str], least: int, most: int) -> list[str]:
        """Choose log dirs."""
        return sorted(self.rng.sample(dirs, self.rng.randint(least, most)))

    def a_death(self) -> Death:
        """Choose when the process ends."""
        return Death(self.some(self.dirs, 1, len(self.dirs)), self.rng.randint(1, 6))

    def round(self) -> None:
        """Open the store with some of the log dirs, and make changes while others fail."""
        readable = self.some(self.dirs, 1, len(self.dirs))
        self.death = self.a_death() if self.rng.random() < 0.4 else Death([], 0)
        with self.death, ExitStack() as stack:
            try:
                self.live(readable, stack)
                self.death.check()  # it may have come in another thread
            except CopiesIncompleteError:
                self.refusals += 1
                assert set(readable) < set(self.dirs)
                assert self.members is None or not set(self.members) <= set(readable)
            except CopyForkedError as error:
                raise AssertionError(f"a fork: {error}") from error
            except DeathError:
                self.deaths += 1
                self.members = None

    def live(self, readable: list[str], stack: ExitStack) -> None:
        """Check what is there, and make changes."""
        with EmbeddedStore(readable, self.settings) as store, store.connect() as session:
            self.opens += 1
            self.check(session.children("/"), readable)
            self.members = readable
            for _ in range(self.rng.randint(0, 3)):
                working = [path for path in readable if path not in store.failures]
                failing = self.some(working, 0, len(working) // 2)
                for path in failing:
                    stack.enter_context(FaultyFiles(path, self.fault, 1))
                self.changes += 1
                self.pending = [f"n{self.changes:04d}"]
                self.change(session)
                self.acknowledged, self.pending = self.acknowledged + self.pending, []
                self.death.check()
                self.after_a_change(stack)
        self.members = [path for path in readable if path not in store.failures]

    def check(self, found: list[str], readable: list[str]) -> None:
        """Check that an open found all changes; the pending change may have happened."""
        known = {*self.acknowledged, *self.pending}
        assert found in (self.acknowledged, self.acknowledged + self.pending), (
            f"missing: {sorted(set(self.acknowledged) - set(found))}, "
            f"surplus: {sorted(set(found) - known)}, pending: {self.pending}, "
            f"opened: {readable}, members before: {self.members}, found: {found}"
        )
        self.acknowledged, self.pending = found, []

    def change(self, session: EmbeddedSession) -> None:
        """Make the pending change."""
        try:
            session.create(f"/{self.pending[0]}")
        except CopiesOfflineError:
            self.death.check()  # it interrupted another thread in a write
            raise

    def after_a_change(self, stack: ExitStack) -> None:
        """Let disks that failed stay as they are."""


class ReturningHistory(History):
    """Log dirs that only time out, and return while the store runs."""

    settings = SETTINGS._replace(return_seconds=0.001)
    fault = Fault("ETIMEDOUT", errno.ETIMEDOUT, EIO.calls, is_sticky=True)

    def a_death(self) -> Death:
        """Choose a line, or any call: late copies are written anew while the store runs."""
        if self.rng.random() < 0.5:
            return super().a_death()
        without = self.some(self.dirs, 1, len(self.dirs))
        return DeathAtACall(without, self.rng.randint(0, 60))

    def after_a_change(self, stack: ExitStack) -> None:
        """Let them answer again, mostly."""
        if self.rng.random() < 0.8:
            stack.close()
            threading.Event().wait(self.rng.random() / 100)


def play(dirs: list[str], seed: int, kind: type[History] = History) -> History:
    """Play a history, in log dirs that all have a copy at its begin."""
    for path in dirs:
        Path(path, JOURNAL_NAME).unlink(missing_ok=True)
    with EmbeddedStore(dirs, SETTINGS):
        pass
    history = kind(dirs, seed)
    for _ in range(20):
        history.round()
    return history


@pytest.mark.parametrize("kind", [History, ReturningHistory])
def test_no_history_loses_a_change(many: list[str], kind: type[History]) -> None:
    """Every open shows all changes, or is refused; with all members it is never refused."""
    seed, done = int(os.environ.get("LOGSTORE_SEED", random.randrange(10**6))), 0
    opens = refusals = deaths = 0
    while done < ROUNDS:
        try:
            history = play(many[: 2 + seed % 4], seed, kind)
        except AssertionError as error:
            pytest.fail(f"LOGSTORE_SEED={seed}: {error}")
        opens, refusals = opens + history.opens, refusals + history.refusals
        deaths += history.deaths
        done, seed = done + 20, seed + 1
    assert opens > refusals / 10 > 0 < deaths
    print(f"coordination: {opens} opens, {refusals} refused, {deaths} deaths, seed {seed - 1}")


def is_enough_of(share: float) -> Any:
    """Make a mutant that believes a smaller share of the members."""

    def is_enough(self: Membership, found: set[str]) -> bool:
        return len(self.members) - len(self.missing(found)) > share * len(self.members)

    return is_enough


def jump_to(self: Membership, wanted: dict[str, str], zxid: int) -> Membership | None:
    """Change all members at once."""
    is_same = self.members.keys() == wanted.keys()
    return None if is_same else self.renewed(zxid, dict(wanted))


def renew_nothing(self: Copies, zxid: int, **options: Any) -> dict[str, OSError]:
    """Begin no epoch at an open, if the members are the same."""
    self._is_epoch_due = False
    return SETTLE(self, zxid, **options)


SETTLE = Copies._settle
# each with the first of the histories that are tried
MUTANTS: dict[str, tuple[Any, str, Any, int]] = {
    "any copy is believed": (Membership, "is_enough", is_enough_of(0.0), 0),
    "half of the copies are believed": (Membership, "is_enough", is_enough_of(0.49), 0),
    "all members change at once": (Membership, "step_to", jump_to, 925),
    "an open begins no epoch": (Copies, "_settle", renew_nothing, 232),
    "the highest zxid is the newest": (
        found_copies, "_age", lambda one: (one.tree.zxid, one.membership.epoch.number), 241,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.timeout(240)
def test_a_mutant_is_noticed(many: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of its rules, the store loses a change, or refuses a good copy."""
    place, rule, mutant, first = MUTANTS[name]
    monkeypatch.setattr(place, rule, mutant)
    for seed in range(first, first + 3000):
        try:
            play(many[: 2 + seed % 4], seed)
        except AssertionError:
            print(f"coordination: {name}: seed {seed}")
            return
    pytest.fail("not noticed in any history")
