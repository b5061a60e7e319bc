"""Before a take-over, Kafka's metadata log is read: settings, and what is not in the log dirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.config import KAFKA_LOG_CONFIG
from broker.hands import kraft_log
from broker.hands.hand_back import hand_back
from broker.hands.kraft_image import Image
from broker.hands.kraft_log import read_image
from broker.hands.survey import survey
from broker.hands.take_over import take_over
from logstore import CorruptionError, LogStore, TopicPartition
from logstore.format.prefix import walk
from support.kafka_golden import GOLDEN


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Two log dirs of Kafka 4.1; the first one has the metadata log."""
    for name in ("a", "b"):
        shutil.copytree(GOLDEN / "hands" / name, tmp_path / name)
    return [str(tmp_path / name) for name in ("a", "b")]


def test_topics_keep_their_settings(dirs: list[str]) -> None:
    """The settings come from the metadata log; all others are the defaults."""
    done = take_over(dirs, KAFKA_LOG_CONFIG.replace(segment_bytes=5_000_000))
    assert all("doomed-0." in one for one in done.warnings)  # Kafka was about to delete it
    with LogStore.open(dirs) as store:
        assert "__cluster_metadata" not in {key.topic for key in store}
        kept, keyed, plain = (store.log(name, 0).config for name in ("kept", "keyed", "plain"))
        assert (kept.retention_ms, kept.segment_bytes) == (None, 3_000_000)
        assert kept.max_message_bytes == 2_000_000
        assert (keyed.cleanup_policy, keyed.segment_bytes) == ("compact", 5_000_000)
        assert plain == KAFKA_LOG_CONFIG.replace(segment_bytes=5_000_000)
        offsets = store.log("__consumer_offsets", 0).config
        assert (offsets.cleanup_policy, offsets.segment_bytes) == ("compact", 100 << 20)
    before = {path.name: path.read_bytes() for path in metadata_of(Path(dirs[0]) / ".kafka")}
    hand_back(dirs)
    assert {path.name: path.read_bytes() for path in metadata_of(Path(dirs[0]))} == before


def metadata_of(place: Path) -> list[Path]:
    """List the files of the metadata log."""
    return sorted((place / "__cluster_metadata-0").iterdir())


def test_what_kafka_knows(dirs: list[str]) -> None:
    """Its topics, their replicas, and its log dirs."""
    image = read_image(dirs[0])
    names = {topic.name for topic in image.topics.values()}
    assert names == {"plain", "kept", "keyed", "__consumer_offsets", "__transaction_state"}
    assert all(set(topic.replicas.values()) == {(1,)} for topic in image.topics.values())
    ids = [
        line.split("=")[1]
        for path in dirs
        for line in (Path(path) / "meta.properties").read_text().splitlines()
        if line.startswith("directory.id")
    ]
    assert {key: sorted(one) for key, one in image.brokers.items()} == {1: sorted(ids)}


def test_a_log_dir_that_is_not_named_is_noticed(dirs: list[str]) -> None:
    """The metadata log lists the log dirs and the partitions."""
    with LogStore.open_kafka(dirs[:1]) as store:
        assert any("was not passed" in one for one in store.recovery_report.warnings)
    found = survey(dirs[:1], KAFKA_LOG_CONFIG, None)
    assert any("of the broker was not named" in one for one in found.problems)
    assert any(one.startswith("no log dir has the partitions") for one in found.problems)


def test_a_metadata_log_in_another_place(dirs: list[str], tmp_path: Path) -> None:
    """It can be named; without it, each topic gets the defaults, and a warning."""
    (tmp_path / "elsewhere").mkdir()
    source = Path(dirs[0]) / "__cluster_metadata-0"
    source.rename(tmp_path / "elsewhere" / source.name)
    found = survey(dirs, KAFKA_LOG_CONFIG, None)
    assert not found.problems
    assert sum("its settings are unknown" in one for one in found.warnings) == 3
    found = survey(dirs, KAFKA_LOG_CONFIG, str(tmp_path / "elsewhere"))
    assert not found.problems
    assert not any("settings" in one for one in found.warnings)
    assert found.configs["kept"].retention_ms is None
    found = survey(dirs, KAFKA_LOG_CONFIG, str(tmp_path))
    assert any("there is no __cluster_metadata-0" in one for one in found.problems)


def test_a_damaged_metadata_log_is_a_problem(dirs: list[str]) -> None:
    """Nothing is taken over by half of what it says."""
    path = Path(dirs[0]) / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        read_image(dirs[0])
    found = survey(dirs, KAFKA_LOG_CONFIG, None)
    assert any("cannot be read" in one for one in found.problems)


def test_a_partition_that_kafka_does_not_know_is_kept_for_it(dirs: list[str]) -> None:
    """It is not served, and goes back unchanged."""
    unknown = Path(dirs[1]) / "unknown-0"
    shutil.copytree(next(path for one in dirs for path in Path(one).glob("plain-0")), unknown)
    before = {path.name: path.read_bytes() for path in unknown.iterdir()}
    done = take_over(dirs, KAFKA_LOG_CONFIG)
    assert [one.split(":")[0] for one in done.warnings][1:] == ["unknown-0"]
    with LogStore.open(dirs) as store:
        assert TopicPartition("unknown", 0) not in store
    hand_back(dirs)
    assert {path.name: path.read_bytes() for path in unknown.iterdir()} == before


def test_log_dirs_of_kafka_with_zookeeper(dirs: list[str]) -> None:
    """Their identity has another form, and there is no metadata log."""
    for path in map(Path, dirs):
        shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
        (path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=a-cluster\n")
        for one in path.glob("*/partition.metadata"):
            one.unlink()
    take_over(dirs, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        assert store.broker_id == 7
        ids = {store.log("kept", number).topic_id for number in (0, 1)}
        assert len(ids) == 1 and any(ids.pop())
        assert store.log("__consumer_offsets", 0).config.cleanup_policy == "compact"
    hand_back(dirs)
    assert "version=0" in (Path(dirs[0]) / "meta.properties").read_text()
    assert not [path for one in dirs for path in Path(one).glob("*/partition.metadata")]


@pytest.mark.parametrize("has_metadata_log", [True, False])
@pytest.mark.parametrize("data", [None, b"version: 0\ntopic_id: what\n"])
def test_regression_a_partition_without_its_topic_id(
    dirs: list[str], data: bytes | None, has_metadata_log: bool
) -> None:
    """Kafka writes the file late; the whole topic got a new id, and Kafka served it empty."""
    if not has_metadata_log:
        shutil.rmtree(Path(dirs[0]) / "__cluster_metadata-0")
    (path,) = [found for one in dirs for found in Path(one).glob("kept-1/partition.metadata")]
    before = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    with LogStore.open_kafka(dirs) as source:
        topic_id = source.log("kept", 0).topic_id
    take_over(dirs, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        assert {store.log("kept", at).topic_id for at in (0, 1)} == {topic_id}
    assert not hand_back(dirs).created
    assert path.read_bytes().strip() == before.strip()


def test_regression_without_a_metadata_log_topic_ids_must_agree(dirs: list[str]) -> None:
    """Otherwise partitions of a deleted topic could be mixed with those of a new topic."""
    shutil.rmtree(Path(dirs[0]) / "__cluster_metadata-0")
    (path,) = [found for one in dirs for found in Path(one).glob("kept-1/partition.metadata")]
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    problems = survey(dirs, KAFKA_LOG_CONFIG, None).problems
    assert [one.split(":")[0] for one in problems] == ["topic kept"]


def snapshot_of(dirs: list[str]) -> tuple[Path, bytes]:
    """Replace the metadata log by a snapshot with its records; give its path and its bytes."""
    place = Path(dirs[0]) / "__cluster_metadata-0"
    whole = (Path(dirs[0]) / "bootstrap.checkpoint").read_bytes()  # a file of the same kind
    spans = list(walk(whole))
    head, tail = whole[: spans[0].size_bytes], whole[spans[-1].position :]
    data = head + (place / f"{0:020d}.log").read_bytes() + tail
    for path in place.glob("0*"):
        path.unlink()
    (place / f"{2000:020d}.log").touch()
    path = place / f"{2000:020d}-0000000001.checkpoint"
    path.write_bytes(data)
    return path, data


def test_a_snapshot_of_the_metadata_log(dirs: list[str]) -> None:
    """A topic keeps its settings if the log has only a snapshot of them."""
    snapshot_of(dirs)
    found = survey(dirs, KAFKA_LOG_CONFIG, None)
    assert not found.problems and found.configs["kept"].retention_ms is None


def test_regression_a_snapshot_that_ends_early_is_a_problem(dirs: list[str]) -> None:
    """Topics lost the settings that came after its end, without a word."""
    path, data = snapshot_of(dirs)
    spans = list(walk(data))
    ends = {span.position for span in spans[-3:]} | {len(data) - 1, spans[-2].position + 20}
    for end in sorted(ends):
        path.write_bytes(data[:end])
        with pytest.raises(CorruptionError, match="the end of the snapshot is missing"):
            read_image(dirs[0])
    path.write_bytes(data + bytes(10))
    assert any(
        "the end of the snapshot" in one for one in survey(dirs, KAFKA_LOG_CONFIG, None).problems
    )


@pytest.mark.parametrize(("key", "value"), [
    ("cleanup.policy", ""), ("cleanup.policy", "later"), ("retention.ms", "-5"),
    ("retention.ms", "for ever"), ("retention.bytes", "-7"),
])  # fmt: skip
def test_regression_without_readable_limits_no_record_is_deleted(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    """The topic got the default of seven days, and its records were gone after the first start."""
    image = read_image(dirs[0])
    image.configs["plain"] = {key: value}
    monkeypatch.setattr(kraft_log, "read_image", lambda place: image)
    defaults = KAFKA_LOG_CONFIG.replace(retention_bytes=1 << 30)
    found = survey(dirs, defaults, None)
    config = found.configs["plain"]
    assert config.cleanup_policy == "delete"
    limits = {"retention.ms": config.retention_ms, "retention.bytes": config.retention_bytes}
    for name, limit in limits.items():
        assert (limit is None) == (key in (name, "cleanup.policy")), name
    assert "topic plain: no record is deleted, until you set its limits" in found.warnings
    assert found.configs["kept"] != defaults and found.configs["keyed"].retention_ms is not None


def test_regression_unknown_settings_delete_no_record(dirs: list[str]) -> None:
    """Without a metadata log, a topic without limits got the default of seven days."""
    shutil.rmtree(Path(dirs[0]) / "__cluster_metadata-0")
    found = survey(dirs, KAFKA_LOG_CONFIG.replace(retention_bytes=1 << 30), None)
    for topic in ("plain", "kept", "keyed"):
        config = found.configs[topic]
        assert (config.retention_ms, config.retention_bytes) == (None, None), topic
    assert found.configs["__consumer_offsets"].cleanup_policy == "compact"


def test_regression_tiered_topics_are_refused(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their older records are not in the log dirs."""
    image = read_image(dirs[0])
    monkeypatch.setattr(kraft_log, "read_image", lambda place: image)
    image.configs["plain"] = {"remote.storage.enable": "false"}
    assert not survey(dirs, KAFKA_LOG_CONFIG, None).problems
    image.configs["plain"] = {"remote.storage.enable": "True"}
    problems = survey(dirs, KAFKA_LOG_CONFIG, None).problems
    assert [one.split(" is set")[0] for one in problems] == ["topic plain: remote.storage.enable"]


def test_regression_the_metadata_log_of_another_cluster_is_refused(
    dirs: list[str], tmp_path: Path
) -> None:
    """All partitions counted as unknown to Kafka, and none was taken over."""
    other = tmp_path / "other"
    other.mkdir()
    (Path(dirs[0]) / "__cluster_metadata-0").rename(other / "__cluster_metadata-0")
    text = (Path(dirs[0]) / "meta.properties").read_text()
    (other / "meta.properties").write_text(text)
    assert not survey(dirs, KAFKA_LOG_CONFIG, str(other)).problems
    lines = [one for one in text.splitlines() if not one.startswith("cluster.id")]
    (other / "meta.properties").write_text("\n".join([*lines, "cluster.id=A" + "A" * 21]))
    problems = survey(dirs, KAFKA_LOG_CONFIG, str(other)).problems
    assert len(problems) == 1 and f"belongs to the cluster {'A' * 22}, " in problems[0]


def test_regression_a_metadata_log_that_knows_no_partition_is_refused(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an identity beside it, only its content shows that it is the wrong one."""
    monkeypatch.setattr(kraft_log, "read_image", lambda place: Image())
    problems = survey(dirs, KAFKA_LOG_CONFIG, None).problems
    assert len(problems) == 1 and "knows no partition" in problems[0]


def test_regression_without_a_metadata_log_a_missing_partition_is_noticed(dirs: list[str]) -> None:
    """A log dir was perhaps not named, and the broker created the missing partition again."""
    shutil.rmtree(Path(dirs[0]) / "__cluster_metadata-0")
    (named,) = [one for one in dirs if (Path(one) / "kept-1").exists()]
    found = survey([named], KAFKA_LOG_CONFIG, None)
    assert any(
        one.startswith("topic kept: no log dir has its partitions 0;") for one in found.warnings
    )
    assert not any("no log dir" in one for one in survey(dirs, KAFKA_LOG_CONFIG, None).warnings)


@pytest.mark.parametrize("name", [
    "log-start-offset-checkpoint", "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint", "cleaner-offset-checkpoint",
])  # fmt: skip
def test_regression_a_damaged_checkpoint_of_kafka_is_refused(dirs: list[str], name: str) -> None:
    """Records that were deleted came back, because the log starts were not known."""
    path = Path(dirs[1]) / name
    path.write_bytes(bytes(20))
    found = survey(dirs, KAFKA_LOG_CONFIG, None)
    assert len(found.problems) == 1 and found.problems[0].startswith(f"{path}: not a checkpoint")
    assert not any(name in one for one in found.warnings)
    path.unlink()
    assert not survey(dirs, KAFKA_LOG_CONFIG, None).problems


def test_regression_defaults_that_kafka_changed_while_it_ran(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are only in the metadata log; a topic got the limits of server.properties instead."""
    image = read_image(dirs[0])
    image.broker_configs = {
        "": {"log.retention.ms": "-1", "log.retention.bytes": "5", "log.cleanup.policy": "delete"},
        "1": {"log.retention.bytes": "7000"}, "2": {"log.retention.bytes": "8000"},
    }  # fmt: skip
    image.configs["keyed"]["retention.ms"] = "99"
    monkeypatch.setattr(kraft_log, "read_image", lambda place: image)
    configs = survey(dirs, KAFKA_LOG_CONFIG, None).configs
    assert (configs["plain"].retention_ms, configs["plain"].retention_bytes) == (None, 7000)
    assert configs["keyed"].retention_ms == 99
    assert configs["__consumer_offsets"].cleanup_policy == "compact"
