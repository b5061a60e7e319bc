"""A change of hands that is killed at any point can be repeated, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import foresee, hand_back
from broker.hands.take_over import take_over
from logstore import LogDirIdentityError, LogStore, TopicPartition
from logstore.store.kafka.hands import WORK_DIRS, read_change
from support.hands import Worker, bytes_below, check, known, names_below, small

# How many points of a take-over, and of a hand-back, are tried.
KILLS = int(os.environ.get("LOGSTORE_HANDS_KILLS", "6"))


@pytest.fixture
def worker() -> Iterator[Worker]:
    """Run a worker for one test."""
    made = Worker()
    try:
        yield made
    finally:
        made.close()


def killed(
    place: Path, worker: Worker, name: str, prepare: Callable[[Path], list[Path]], seed: int
) -> Iterator[list[Path]]:
    """Kill a change of hands at several points, repeat it, and give the log dirs."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    first = prepare(place / "first")
    count, how = worker.ask(name, first)
    assert how == "done", how
    names = {one for one in names_below(first) if "log-dir-ballast" not in one}
    points = sorted(rng.sample(range(1, count + 1), min(KILLS, count)))
    for point in points:
        dirs = prepare(place / str(point))
        assert worker.ask(name, dirs, point)[1] == "killed", point
        _, how = worker.ask(name, dirs)
        assert how == "done", (point, how)
        assert {one for one in names_below(dirs) if "log-dir-ballast" not in one} == names, point
        yield dirs
        shutil.rmtree(place / str(point))


def test_a_killed_take_over_is_repeated(tmp_path: Path, worker: Worker) -> None:
    """Whenever the take-over is killed, a second one completes it."""
    expected = known("stopped", small(tmp_path / "given"))
    for dirs in killed(tmp_path, worker, "take_over", small, random.randrange(2**32)):
        with LogStore.open(dirs) as store:
            check(store, expected)


def taken(place: Path) -> list[Path]:
    """Lay out log dirs that were taken over, and then written."""
    dirs = small(place)
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        store.log("stamped", 0).append(b"between", timestamp=1)
    return dirs


def test_a_killed_hand_back_is_repeated(tmp_path: Path, worker: Worker) -> None:
    """Whenever the hand-back is killed, a second one completes it."""
    expected = known("stopped", small(tmp_path / "given"))
    stamped = expected.pop(TopicPartition("stamped", 0))
    for dirs in killed(tmp_path, worker, "hand_back", taken, random.randrange(2**32)):
        with LogStore.open_kafka(dirs) as source:
            check(source, expected)
            assert source.log("stamped", 0).read(stamped.end)[0].value == b"between"
            assert source.verify().is_sound


def test_between_the_two_owners_neither_starts(tmp_path: Path, worker: Worker) -> None:
    """A store does not open log dirs whose change is not finished, and creates no new one there."""
    count, _ = worker.ask("take_over", small(tmp_path / "first"))
    seen = set()
    for point in range(count, 0, -9):
        dirs = small(tmp_path / str(point))
        assert worker.ask("take_over", dirs, point)[1] == "killed"
        document = dirs[0] / "change-of-hands"
        step = json.loads(document.read_text().split("\n")[0])["step"]
        seen.add(step)
        if step == "taken":
            continue
        with pytest.raises(LogDirIdentityError, match="run `logstore take-over` again"):
            LogStore.open(dirs)
        # Kafka starts on no log dir with such a directory.
        assert WORK_DIRS & {path.name for path in dirs[0].iterdir()}
        if step == "building":
            break
    assert seen >= {"building", "moving out", "moving in"}


def test_an_interrupted_build_can_be_undone(tmp_path: Path, worker: Worker) -> None:
    """A hand-back removes what a take-over has built, if nothing has changed hands yet."""
    dirs = small(tmp_path)
    before = bytes_below(dirs)
    assert worker.ask("take_over", dirs, 60)[1] == "killed"
    assert (dirs[0] / ".logstore.new").exists()
    assert hand_back([str(one) for one in dirs]).is_undone
    assert bytes_below(dirs) == before


def test_regression_a_repeated_hand_back_reports_the_same(tmp_path: Path, worker: Worker) -> None:
    """After a kill, it reported no partitions, and no new or deleted topics."""

    def prepare(place: Path) -> list[Path]:
        dirs = taken(place)
        with LogStore.open(dirs) as store:
            store.create("new", 0, config=KAFKA_LOG_CONFIG).append(b"v")
            store.delete("segments", 0)
        (dirs[0] / "notes.txt").touch()
        return dirs

    count, _ = worker.ask("hand_back", prepare(tmp_path / "first"))
    seen = set()
    for point in range(count, 0, -4):
        dirs = prepare(tmp_path / str(point))
        paths = [str(one) for one in dirs]
        expected = foresee(paths)
        assert worker.ask("hand_back", dirs, point)[1] == "killed"
        found = [one for one in map(read_change, paths) if one is not None]
        if not found:  # the hand-back was complete
            continue
        seen |= {one.step for one in found}
        assert foresee(paths) == hand_back(paths) == expected
        assert expected.created == (TopicPartition("new", 0),)
        if seen >= {"putting away", "putting back", "clearing"}:
            break
    assert seen >= {"putting away", "putting back", "clearing"}
