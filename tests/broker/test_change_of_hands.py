"""The log dirs of a Kafka broker change hands, and nothing of them is lost, not even by a kill."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPlace
from confluent_kafka.admin import AdminClient

from broker import Broker
from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import foresee, hand_back
from broker.hands.stages import ChangeOfHandsError
from broker.hands.take_over import PRODUCER_IDS_FROM, take_over
from logstore import LogDirLockedError, LogStore, TopicPartition
from logstore.cli.app import app
from logstore.store.kafka.hands import WORK_DIRS
from support.hands import bytes_below, check, epochs_below, known, names_below, read, small
from support.kafka_golden import log_dirs

SECONDS = 20.0

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


def test_regression_files_of_other_programs_stay(tmp_path: Path) -> None:
    """A hand-back removed what had come into a log dir after the take-over."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    (dirs[0] / "before.txt").write_text("before")
    take_over(paths, KAFKA_LOG_CONFIG)
    stray = dirs[1] / f"gone-0.{'7' * 32}.stray"
    texts = {
        dirs[0] / "notes.txt": "1", dirs[0] / "backup" / "x": "2", dirs[1] / "backup-7" / "y": "3",
        dirs[1] / f"a-0.{'5' * 32}.delete" / "z": "4", stray / f"{0:020d}.log": "5",
    }  # fmt: skip
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (dirs[0] / "before.txt").write_text("after")
    for change in (foresee, hand_back):
        with pytest.raises(ChangeOfHandsError, match=r"before.txt: .* move the new file away"):
            change(paths)
    (dirs[0] / "before.txt").unlink()
    left = [dirs[0] / "backup", dirs[0] / "notes.txt", dirs[1] / f"a-0.{'5' * 32}.delete"]
    left += [dirs[1] / "backup-7", stray]
    for result in (foresee(paths), hand_back(paths)):
        assert list(result.left) == [str(one) for one in left]
    assert {path: path.read_text() for path in texts} == texts
    assert (dirs[0] / "before.txt").read_text() == "before"


def rights_below(dirs: list[Path]) -> dict[str, tuple[int, int, int]]:
    """Give the owner, the group and the mode of each file and directory."""
    found = {}
    for path in (path for one in dirs for path in [one, *one.rglob("*")]):
        facts = path.stat()
        found[str(path)] = facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)
    return found


def test_regression_files_keep_their_owner_and_mode(tmp_path: Path) -> None:
    """If root ran the commands, the user of Kafka could not open the new files."""
    dirs = small(tmp_path)
    for path in (path for one in dirs for path in [one, *one.rglob("*")]):
        if os.geteuid() == 0:
            os.chown(path, 1234, 2345)
        path.chmod(0o750 if path.is_dir() else 0o640)
    before = rights_below(dirs)
    owner = before[str(dirs[0])][:2]
    mask = os.umask(0o077)
    try:
        take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
        assert {one[:2] for one in rights_below(dirs).values()} == {owner}
        modes = {one[2] for name, one in rights_below(dirs).items() if Path(name).is_file()}
        assert modes == {0o640}
        hand_back([str(one) for one in dirs])
    finally:
        os.umask(mask)
    after = rights_below(dirs)
    assert {name: after.get(name, one) for name, one in before.items()} == before
    assert set(after.values()) == set(before.values()), "and those of the new files"


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


# --- as a broker ----------------------------------------------------------------------------------


def test_groups_and_transactions_continue(tmp_path: Path) -> None:
    """The coordinators load Kafka's own records: offsets, and a transaction that was left open."""
    dirs = log_dirs("killed", tmp_path)
    take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    with Broker.start(dirs) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        listed = AdminClient(servers).list_topics(timeout=SECONDS)
        assert listed.cluster_id == "WYmQRMlVQyezWY6djKO-Hg"
        consumer = Consumer({**servers, "group.id": "readers"})
        (found,) = consumer.committed([KafkaPlace("stamped", 0)], SECONDS)
        assert (found.error, found.offset) == (None, 1)
        log = broker.store.log("unfinished", 0)
        assert (log.last_stable_offset, log.log_end_offset) == (0, 2)
        producer = Producer({**servers, "transactional.id": "open"})
        producer.init_transactions(SECONDS)  # which aborts the transaction
        producer.begin_transaction()
        producer.produce("unfinished", b"of the same producer", partition=0)
        producer.commit_transaction(SECONDS)
        consumer.assign([KafkaPlace("unfinished", 0, 0)])
        values = [one.value() for one in consumer.consume(2, SECONDS)]  # waits for the marker
        consumer.close()
        assert values == [b"behind the last stable offset", b"of the same producer"]


# --- the commands ---------------------------------------------------------------------------------


def run(*words: str) -> Result:
    """Run a command of the program in this process."""
    return CliRunner().invoke(app, words)


def test_the_commands(tmp_path: Path) -> None:
    """Both commands say what they would do, and what they have done."""
    dirs = small(tmp_path)
    named = ["--log-dirs", ",".join(map(str, dirs))]
    before = bytes_below(dirs)
    done = run("take-over", *named, "--check", "--format", "json")
    facts = json.loads(done.stdout)
    assert (facts["partition_count"], facts["problems"]) == (4, [])
    assert (facts["cluster_id"], facts["node_id"]) == ("WYmQRMlVQyezWY6djKO-Hg", "1")
    assert "topic stamped: its settings are unknown" in done.stderr
    assert bytes_below(dirs) == before
    assert run("hand-back", *named).exit_code == 1
    assert run("take-over", *named).stdout == "4 partitions are taken over\n"
    assert run("take-over", *named).stdout == "4 partitions were already taken over\n"
    done = run("take-over", *named, "--check")
    assert done.stdout == "the log dirs were already taken over\n"
    assert run("hand-back", *named, "--check").stdout == "4 partitions would be handed back\n"
    assert run("hand-back", *named).stdout == "4 partitions are handed back\n"
    (dirs[0] / "meta.properties").unlink()
    done = run("take-over", *named, "--check")
    assert done.exit_code == 1 and "no meta.properties" in done.stderr


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
    for change in (foresee, hand_back):
        with LogStore.open(dirs), pytest.raises(LogDirLockedError):
            change([str(one) for one in dirs])
    with (dirs[0] / ".lock").open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no lock is left behind


def test_regression_the_check_refuses_what_a_hand_back_refuses(tmp_path: Path) -> None:
    """Both name a partition that cannot be read, and both refuse a store that is open."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    take_over(paths, KAFKA_LOG_CONFIG)
    (path,) = [one / "stamped-0" for one in dirs if (one / "stamped-0").exists()]
    (path / f"{0:020d}.log").rename(path / "elsewhere")
    (path / f"{0:020d}.log").mkdir()
    for change in (foresee, hand_back):
        with pytest.raises(ChangeOfHandsError, match=r"stamped-0: .*does not serve"):
            change(paths)
    (path / f"{0:020d}.log").rmdir()
    (path / "elsewhere").rename(path / f"{0:020d}.log")
    assert foresee(paths).partition_count == hand_back(paths).partition_count == 4


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
