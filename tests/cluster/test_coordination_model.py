"""Compare both stores with a dictionary, for sessions that do anything in any order."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import ZnodeError
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import (
    Check,
    Create,
    Delete,
    Event,
    Operation,
    Session,
    SessionState,
    Set,
    Store,
)
from cluster.zookeeper import ZooKeeperStore
from support.coordination_model import Model, Refusal
from support.heard import BARRIER, Heard
from support.places import fast_directory
from support.zookeeper_process import ZooKeeperProcess

EXAMPLES = int(os.environ.get("LOGSTORE_COORDINATION_EXAMPLES", "24"))
PATHS = st.sampled_from(["/a", "/a", "/b", "/a/x", "/a/x", "/a/y", "/a/x/z", "/b/x"])
VERSIONS = st.sampled_from([None, None, 0, 1, 2])
DATA = st.binary(max_size=3)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.sampled_from([False, False, True]), st.just(False)),
    st.builds(Create, PATHS, DATA, st.booleans(), st.just(True)),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, st.integers(0, 2)),
)
SESSION = st.integers(0, 1)
ROUNDS = itertools.count()


class Machine(RuleBasedStateMachine):
    """Sessions of a store, and the model; a third session reads everything."""

    def make(self) -> Store:
        """Make an empty store."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """Connect the first sessions."""
        self.store = self.make()
        self.model = Model()
        self.numbers = itertools.count()
        self.reader = self.store.connect()
        self.reader.create(BARRIER)
        self.model.multi(-1, [Create(BARRIER)])
        self.zxid = self.reader.zxid()
        self.sessions: list[tuple[int, Session]] = []
        self.heard: dict[int, Heard[Event]] = {}
        for _ in range(2):
            self.sessions.append(self.new_session())

    def new_session(self) -> tuple[int, Session]:
        """Connect one more session."""
        number = next(self.numbers)
        self.heard[number] = Heard()
        return number, self.store.connect()

    def owner(self, number: int | None) -> int:
        """Return the id of a session of the model."""
        ids = {known: session.key.session_id for known, session in self.sessions}
        return 0 if number is None else ids[number]

    @rule(place=SESSION, operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def change(self, place: int, operations: list[Operation]) -> None:
        """Do operations as one change."""
        number, session = self.sessions[place]
        try:
            expected = self.model.multi(number, operations)
        except Refusal as refusal:
            name, path, at = refusal.args
            try:
                session.multi(operations)
            except ZnodeError as error:
                assert (type(error).__name__, error.path, error.operation) == (name, path, at)
                return
            raise AssertionError(f"{operations} should have failed with {refusal.args}") from None
        answers = session.multi(operations)
        for one, answer in zip(expected, answers, strict=True):
            assert (one is None) == (answer is None)
            if one and answer:
                path, node = one
                assert answer[:2] == (path, node.data)
                assert answer[4:] == (node.version, self.owner(node.owner))
                assert answer.mzxid > self.zxid
        self.zxid = max([self.zxid, *(answer.mzxid for answer in answers if answer)])

    @rule(place=SESSION, path=PATHS, of_children=st.booleans())
    def watch(self, place: int, path: str, of_children: bool) -> None:
        """Set a watch, unless it is already set, or the znode does not exist."""
        number, session = self.sessions[place]
        is_set = (number, path, of_children) in self.model.watches
        if is_set or (of_children and path not in self.model.nodes):
            return
        if of_children:
            assert session.watch_children(path, self.heard[number]) == self.model.children(path)
        else:
            znode = session.watch(path, self.heard[number])
            node = self.model.nodes.get(path)
            assert (znode and znode.data) == (node and node.data)
        self.model.watch(number, path, of_children)

    @rule(place=SESSION, is_taken=st.booleans())
    def end(self, place: int, is_taken: bool) -> None:
        """Close a session, or let another connection close it; then begin a new one."""
        number, session = self.sessions[place]
        self.check_events(number, session)
        if is_taken:
            ended = Heard[SessionState]()
            session.on_session(ended)
            self.store.connect(session.key).close()
            ended.until(SessionState.EXPIRED)
        session.close()
        self.model.end(number)
        self.sessions[place] = self.new_session()

    @rule()
    def read(self) -> None:
        """Read all there is."""
        self.check(self.reader, "/")

    def check(self, session: Session, path: str) -> None:
        """Compare a znode, and the znodes below it."""
        node, found = self.model.nodes[path], session.get(path)
        assert (found.data, found.version) == (node.data, node.version)
        assert found.ephemeral_owner == self.owner(node.owner)
        if path != BARRIER:
            names = session.children(path)
            assert names == self.model.children(path)
            for name in names:
                self.check(session, f"{path.rstrip('/')}/{name}")

    def check_events(self, number: int, session: Session) -> None:
        """Compare the events of a session's watches."""
        found = self.heard[number].all_until_now(session, self.reader)
        assert found == self.model.events.pop(number, [])

    def teardown(self) -> None:
        """Compare everything once more, and disconnect."""
        if hasattr(self, "store"):
            self.check(self.reader, "/")
            for number, session in self.sessions:
                self.check_events(number, session)
            for _, session in self.sessions:
                session.close()
            self.reader.close()


class EmbeddedMachine(Machine):
    """The embedded store, which is also closed and opened again; its journal is short."""

    SETTINGS: ClassVar = EmbeddedSettings(rewrite_bytes_min=600)

    def make(self) -> Store:
        """Make a store in two new directories."""
        self.place = ExitStack()
        base = self.place.enter_context(fast_directory())
        self.dirs = [str(base / name) for name in ("a", "b")]
        for path in self.dirs:
            os.mkdir(path)
        return EmbeddedStore(self.dirs, self.SETTINGS)

    @rule()
    def open_again(self) -> None:
        """Close the store, which ends all sessions, and open it."""
        for number, session in self.sessions:
            self.check_events(number, session)
        before = self.reader.zxid()
        assert isinstance(self.store, EmbeddedStore)
        self.store.close()
        self.store = EmbeddedStore(self.dirs, self.SETTINGS)
        assert not self.store.is_new
        self.reader = self.store.connect()
        assert self.reader.zxid() >= before
        for place, (number, _) in enumerate(self.sessions):
            self.model.end(number)
            self.model.events.pop(number, None)
            self.sessions[place] = self.new_session()
        self.model.watches, self.model.events = [], {}

    def teardown(self) -> None:
        """Close the store, too."""
        super().teardown()
        if hasattr(self, "store"):
            assert isinstance(self.store, EmbeddedStore)
            self.store.close()
            self.place.close()


def test_the_embedded_store_is_a_dictionary() -> None:
    """This holds for any history of sessions, changes, watches and opens."""
    run_state_machine_as_test(
        EmbeddedMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=25)
    )


def test_zookeeper_is_the_same_dictionary(server: ZooKeeperProcess) -> None:
    """So a program that works on the embedded store works on ZooKeeper."""

    class ZooKeeperMachine(Machine):
        def make(self) -> Store:
            path = f"{server.hosts}/model/{next(ROUNDS)}"
            return ZooKeeperStore(path, session_timeout_ms=600_000, request_timeout_ms=60_000)

    run_state_machine_as_test(
        ZooKeeperMachine, settings=settings(max_examples=EXAMPLES // 2, stateful_step_count=25)
    )
