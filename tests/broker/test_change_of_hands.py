"""The log dirs of a Kafka broker change hands, and nothing of them is lost, not even by a kill."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import foresee, hand_back
from broker.hands.stages import ChangeOfHandsError
from broker.hands.take_over import PRODUCER_IDS_FROM, take_over
from logstore import LogDirIdentityError, LogDirLockedError, LogStore, TopicPartition
from logstore.store.kafka.hands import WORK_DIRS
from support.kafka_golden import Given, given, log_dirs
from support.source_tree import REPOSITORY

LEVELS = ("read_uncommitted", "read_committed")
SOME = {"segments-0", "transactions-0", "stamped-0", "__consumer_offsets-0"}
# How many points of a take-over, and of a hand-back, are tried.
KILLS = int(os.environ.get("LOGSTORE_HANDS_KILLS", "6"))


class Worker:
    """A process that lets log dirs change hands, and is killed on the way."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.hands_worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd=REPOSITORY / "tests",
            env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}", "PATH": "/bin"},
        )  # fmt: skip

    def ask(self, name: str, dirs: list[Path], number: int = 0) -> tuple[int, str]:
        """Give how many changes of a disk there were, and how it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = json.dumps([name, [str(one) for one in dirs], number])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        count, how = json.loads(self._process.stdout.readline())
        return count, how

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture
def worker() -> Iterator[Worker]:
    """Run a worker for one test."""
    made = Worker()
    try:
        yield made
    finally:
        made.close()


def read(store: LogStore, key: TopicPartition) -> dict[str, list[tuple[Any, ...]]]:
    """Read a log in both isolation levels."""
    log = store.log(*key)
    return {
        level: [
            tuple(record[:5])
            for batch in log.read_batches(isolation_level=level)
            for record in batch
        ]
        for level in LEVELS
    }


def check(store: LogStore, expected: dict[TopicPartition, Given]) -> None:
    """Compare the logs with what Kafka's consumers were given."""
    for key, one in expected.items():
        log = store.log(*key)
        assert (log.log_start_offset, log.log_end_offset) == (one.start, one.end), key
        rows = dict(zip(LEVELS, (one.uncommitted, one.committed), strict=True))
        assert read(store, key) == rows, key


def names_below(dirs: list[Path]) -> set[str]:
    """List all names in log dirs."""
    return {str(path.relative_to(one.parent)) for one in dirs for path in one.rglob("*")}


def bytes_below(dirs: list[Path]) -> dict[str, bytes]:
    """Give every file below log dirs, except Kafka's empty lock file."""
    found = (path for one in dirs for path in one.rglob("*"))
    return {
        str(path): path.read_bytes() for path in found if path.is_file() and path.stat().st_size
    }


def epochs_below(dirs: list[Path]) -> dict[str, str]:
    """Give Kafka's leader epochs of each partition."""
    found = (path for one in dirs for path in one.glob("*[0-9]/leader-epoch-checkpoint"))
    return {path.parent.name: path.read_text() for path in found}


def small(place: Path, name: str = "stopped") -> list[Path]:
    """Lay out log dirs with few partitions."""
    dirs = log_dirs(name, place)
    for path in (path for one in dirs for path in one.iterdir()):
        if path.is_dir() and path.name not in SOME:
            shutil.rmtree(path)
    for path in (path for one in dirs for path in one.glob("*-checkpoint")):
        path.unlink()
    return dirs


def known(name: str, dirs: list[Path]) -> dict[TopicPartition, Given]:
    """Give what consumers were given of the partitions that are in the log dirs."""
    kept = {path.name for one in dirs for path in one.iterdir()}
    return {key: one for key, one in given(name).items() if str(key) in kept}


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_there_and_back(tmp_path: Path, name: str) -> None:
    """All records are the same in the store and in Kafka's dirs again, with what came between."""
    dirs = log_dirs(name, tmp_path)
    expected, before = known(name, dirs), names_below(dirs)
    with LogStore.open_kafka(dirs) as source:
        ids = {key: source.log(*key).topic_id for key in source}
    epochs = epochs_below(dirs)
    done = take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    assert done.is_new and done.partition_count == len(ids)
    with LogStore.open(dirs) as store:
        assert not store.recovery_report.warnings and store.recovery_report.was_clean
        check(store, expected)
        assert {key: store.log(*key).topic_id for key in store} == ids
        assert (store.broker_id, len(store.cluster_id)) == (1, 32)
        for key in store:
            store.log(*key).append(b"between", key=b"k", timestamp=1)
        states = {key: store.log(*key).producer_states() for key in store}
    assert not take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG).is_new
    assert hand_back([str(one) for one in dirs]).partition_count == len(ids)
    with LogStore.open_kafka(dirs) as source:
        assert store_is_kafkas(source, ids)
        for key, one in expected.items():
            rows = read(source, key)
            assert rows["read_uncommitted"][:-1] == one.uncommitted, key
            assert source.log(*key).read(one.end)[0].value == b"between"
        assert source.verify().is_sound
    assert epochs_below(dirs) == epochs
    after = names_below(dirs)
    kept = {one for one in before if one.endswith((".log", "meta.properties", "-stray"))}
    assert kept - after <= {one for one in before if "-future" in one or "-delete" in one}
    assert not {Path(one).name for one in after} & {*WORK_DIRS, "change-of-hands"}
    # A second time, with the producers that the hand-back wrote.
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        for key, one_log in states.items():
            found = store.log(*key).producer_states()
            assert [one.producer_id for one in found] == [one.producer_id for one in one_log]


def store_is_kafkas(source: LogStore, ids: dict[TopicPartition, bytes]) -> bool:
    """Check that Kafka's log dirs have the partitions with their topic ids."""
    return {key: source.log(*key).topic_id for key in source} == ids


def test_new_and_deleted_topics_are_reported(tmp_path: Path) -> None:
    """Kafka gets a topic that it does not know as a directory with the suffix -stray."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    take_over(paths, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        store.create("new", 0, config=KAFKA_LOG_CONFIG).append(b"v")
        store.create("columns", 0).append(b"w")
        store.delete("segments", 0)
    created = [TopicPartition("columns", 0), TopicPartition("new", 0)]
    for result in (foresee(paths), hand_back(paths)):
        assert list(result.created) == created
        assert list(result.deleted) == [TopicPartition("segments", 0)]
    strays = [path for one in dirs for path in one.glob("*-stray")]
    assert sorted(path.name.split(".")[0] for path in strays) == ["columns-0", "new-0"]
    assert all((path / "partition.metadata").exists() for path in strays)
    # They stay where they are, and are no partitions of the store.
    take_over(paths, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        assert "new" not in {key.topic for key in store}
    hand_back(paths)
    assert all(path.exists() for path in strays)


def test_the_log_start_stays(tmp_path: Path) -> None:
    """Records that were deleted on either side stay deleted on the other."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    (dirs[0] / "log-start-offset-checkpoint").write_text("0\n1\ntransactions 0 2\n")
    take_over(paths, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        assert store.log("transactions", 0).log_start_offset == 2
        store.log("transactions", 0).delete_records_before(5)
    hand_back(paths)
    with LogStore.open_kafka(dirs) as source:
        assert source.log("transactions", 0).log_start_offset == 5


def test_new_producers_get_ids_far_away_from_those_of_kafka(tmp_path: Path) -> None:
    """Kafka counts its ids from 0, and does not know which ids the store has given."""
    from broker.catalog.producer_ids import ProducerIds

    dirs = small(tmp_path)
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        ids = ProducerIds(store)
        assert ids.take() > PRODUCER_IDS_FROM
        ids.close()


# --- kills ----------------------------------------------------------------------------------------


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


# --- refusals -------------------------------------------------------------------------------------


def change_meta(old: str, new: str) -> Callable[[list[Path]], None]:
    """Change a line of the identity of one log dir."""

    def change(dirs: list[Path]) -> None:
        path = dirs[1] / "meta.properties"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def only_future(dirs: list[Path]) -> None:
    """Leave only the unfinished copy of a move."""
    source = dirs[0] / "segments-0"
    source.rename(dirs[0] / f"segments-0.{'0' * 32}-future")


def twice(dirs: list[Path]) -> None:
    """Have one partition in two log dirs."""
    shutil.copytree(dirs[0] / "segments-0", dirs[1] / "segments-0")


def damage(dirs: list[Path]) -> None:
    """Have a message of the format before Kafka 0.11."""
    path = next((dirs[1] / "stamped-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[16] = 1
    path.write_bytes(data)


REFUSALS: list[tuple[Callable[[list[Path]], object], str]] = [
    (change_meta("version=1", "version=7"), "unknown version '7'"),
    (change_meta("WYmQRMlVQyezWY6djKO-Hg", "WYmQRMlVQyezWY6djKO-Hh"), "several brokers"),
    (change_meta("node.id=1", "node.id=2"), "several brokers"),
    (lambda dirs: (dirs[1] / "meta.properties").unlink(), "no meta.properties"),
    (only_future, "unfinished copy of a move"),
    (twice, "live in more than one"),
    (damage, "format|magic|version"),
    (lambda dirs: dirs.append(dirs[0]), "named twice"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSALS)
def test_refusals_change_nothing(
    tmp_path: Path, change: Callable[[list[Path]], object], reason: str
) -> None:
    """What cannot be taken over is refused by a clear error, and stays as it is."""
    dirs = small(tmp_path)
    change(dirs)
    before = bytes_below(dirs)
    with pytest.raises(Exception, match=reason):
        take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    assert bytes_below(dirs) == before
    assert not {name for name in names_below(dirs) if name.endswith(tuple(WORK_DIRS))}


def test_a_kafka_that_runs_is_noticed(tmp_path: Path) -> None:
    """Kafka holds a lock of a range of `.lock`, which belongs to its process."""
    dirs = small(tmp_path)
    (dirs[1] / ".lock").touch()
    before = bytes_below(dirs)
    text = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    kafka = subprocess.Popen(
        [sys.executable, "-c", text, dirs[1] / ".lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert kafka.stdout is not None and kafka.stdout.readline() == "held\n"
        with pytest.raises(LogDirLockedError, match="a Kafka broker runs"):
            take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    finally:
        kafka.communicate()
    assert bytes_below(dirs) == before
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with (
        LogStore.open(dirs),
        pytest.raises(LogDirLockedError),
    ):
        hand_back([str(one) for one in dirs])
    with (dirs[0] / ".lock").open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no lock is left behind


def test_all_log_dirs_must_be_named(tmp_path: Path) -> None:
    """A part of the log dirs is not handed back."""
    dirs = small(tmp_path)
    with pytest.raises(ChangeOfHandsError, match="were not taken over"):
        hand_back([str(one) for one in dirs])
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with pytest.raises(ChangeOfHandsError, match="name all of them"):
        hand_back([str(dirs[0])])
    with pytest.raises(ChangeOfHandsError, match="name all of them"):
        take_over([str(dirs[0])], KAFKA_LOG_CONFIG)
