"""Cut the power at every call of the embedded coordination store: no acknowledged change is lost.

After each cut the store is opened over what is left. Its znodes must be those after the last
acknowledged change, or after the one that was under way. No ephemeral znode of a dead session is
there, the zxid has not fallen, and the store works on.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.coordination import copies, journal
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CoordinationError
from broker.coordination.tree import EmbeddedSettings, Tree
from broker.coordination.verbs import Create, Delete, Operation, Session, Set
from crash.checks import PowerCutViolation
from crash.power_cut import UNSEEN
from logstore.disk import files
from support.crash_model import CrashModel, Image, Op
from support.places import fast_directory
from support.recorder import Recorder, lay_out

CUTS = int(os.environ.get("LOGSTORE_COORDINATION_CUTS", "400"))
DIRS = ("a", "b")
SETTINGS = EmbeddedSettings(rewrite_bytes_min=1500)
CHANGES, LIVES = 12, 3
EPHEMERAL = "/e"

Znodes = dict[str, bytes]


class Known(NamedTuple):
    """What is known at a moment: the znodes that are acknowledged, or may be; the last zxid."""

    acknowledged: Znodes
    possible: Znodes
    zxid: int


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def operations_of(znodes: Znodes, rng: random.Random, number: int) -> list[Operation]:
    """Draw a change: a few creations, writes and deletions, with little data or with much."""
    found: list[Operation] = []
    used: set[str] = set()
    for place in range(rng.choice((1, 1, 2, 4))):
        data = rng.randbytes(rng.choice((0, 3, 3, 40, 700)))
        path = rng.choice([f"/n{number}-{place}", *znodes])
        if path in used:
            continue
        used.add(path)
        if path not in znodes:
            found.append(Create(path, data))
        elif rng.random() < 0.7:
            found.append(Set(path, data))
        else:
            found.append(Delete(path))
    return found


def after(znodes: Znodes, operations: list[Operation]) -> Znodes:
    """Give the znodes after a change."""
    done = dict(znodes)
    for one in operations:
        if isinstance(one, Delete):
            del done[one.path]
        elif isinstance(one, Create | Set):
            done[one.path] = one.data
    return done


def record(root: Path, seed: int) -> list[Op]:
    """Let a store live and be opened again, closed in order or not."""
    root.mkdir()
    paths = [root / name for name in DIRS]
    for path in paths:
        path.mkdir()
    rng, znodes = random.Random(seed), dict[str, bytes]()
    with Recorder(root, dict.fromkeys(DIRS)) as recorder:
        for life in range(LIVES):
            store = EmbeddedStore([str(path) for path in paths], SETTINGS)
            session = store.connect()
            session.create(f"{EPHEMERAL}{life}", ephemeral=True)
            for number in range(CHANGES):
                operations = operations_of(znodes, rng, life * CHANGES + number)
                wanted = after(znodes, operations)
                recorder.mark(Known(znodes, wanted, session.zxid()))
                session.multi(operations)
                znodes = wanted
                recorder.mark(Known(znodes, znodes, session.zxid()))
            if rng.random() < 0.5:
                session.close()
            store.close()
    return recorder.ops


def znodes_of(session: Session) -> Znodes:
    """Read all znodes."""
    paths = [f"/{name}" for name in session.children("/")]
    return {path: session.get(path).data for path in paths}


def check(image: Image, root: Path, known: Known) -> None:
    """Open the store over what is left, twice, and hold it to what is known."""
    shutil.rmtree(root, ignore_errors=True)
    lay_out(image, root)
    paths = [str(root / name) for name in DIRS]
    try:
        with EmbeddedStore(paths, SETTINGS) as store, store.connect() as session:
            found, zxid = znodes_of(session), session.zxid()
            assert found in (known.acknowledged, known.possible), sorted(found)
            assert zxid >= known.zxid, f"the zxid fell from {known.zxid} to {zxid}"
            session.create("/later", b"x")
        with EmbeddedStore(paths, SETTINGS) as store, store.connect() as session:
            assert znodes_of(session) == {**found, "/later": b"x"}
            assert session.zxid() == zxid + 1
    except (CoordinationError, AssertionError) as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


def explore(ops: list[Op], root: Path, seed: int, every: int = 1) -> int:
    """Check what a cut at each moment may leave: nothing that is not synced, and drawn images."""
    model, rng, known, done = (
        CrashModel(dict.fromkeys(DIRS)),
        random.Random(seed),
        None,
        0,
    )
    for number, op in enumerate(ops):
        if op[0] == "mark":
            known = op[1]
        else:
            model.apply(op)
        if op[0] not in UNSEEN and number % every == 0:
            for image in (model.lost(), model.crash(rng), model.crash(rng)):
                check(image, root, known or Known({}, {}, 0))
                done += 1
    return done


@pytest.mark.timeout(120 + CUTS // 10)
def test_a_power_cut_takes_no_acknowledged_change(base: Path) -> None:
    """At each call, over lives that end in order or not."""
    done = 0
    seeds = itertools.count(int(os.environ.get("LOGSTORE_SEED", random.randrange(10**6))))
    for seed in seeds:
        ops = record(base / f"made-{seed}", seed)
        try:
            done += explore(ops, base / "cut", seed)
        except PowerCutViolation as error:
            pytest.fail(f"LOGSTORE_SEED={seed}: {error}")
        if done >= CUTS:
            break
    print(f"crash: coordination: {done} cuts, last seed {seed}")


# --- mutants --------------------------------------------------------------------------------------


def forget_deletions(data: bytes, path: str) -> journal.Journal:
    """Read a journal, and take the zxid from the znodes, as if it was not stored itself."""
    found = journal.decode_journal(data, path)
    found.tree.zxid = max(node.mzxid for node in found.tree.nodes.values())
    return found


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a change is not synced": (files, "sync_data", lambda fd: None),
    "a new journal is not synced": (files, "sync_file", lambda fd: None),
    "a rename is not synced": (files, "sync_names", lambda fd: None),
    "ephemeral znodes stay": (Tree, "owned", lambda self, is_gone: []),
    "the zxid comes from the znodes": (copies, "decode_journal", forget_deletions),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(base: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of its rules, the store loses something, and this test notices it."""
    monkeypatch.setattr(*MUTANTS[name], raising=False)
    for seed in range(20):
        ops = record(base / f"made-{seed}", seed)
        try:
            explore(ops, base / "cut", seed)
        except PowerCutViolation as error:
            print(f"crash: coordination: {name}: seed {seed}: {error}")
            return
    pytest.fail(f"{name}: not noticed in any history")
