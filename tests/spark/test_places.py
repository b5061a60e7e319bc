"""What a host that misses a log dir says, and what a write finds before its tasks run.

No Spark is started for it: the functions that run in tasks and in the planning run here.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from logstore import LogConfig, LogDirLockedError, LogStore, LogStoreError, UnknownPartitionError
from logstore.spark.checks import check_segment
from logstore.spark.options import Place, read_options
from logstore.spark.read import views
from logstore.spark.read.read_plan import pieces_of, survey
from logstore.spark.read.read_task import read_piece
from logstore.spark.source import BatchReader, LogStoreSource
from logstore.spark.write.sink import BatchWriter, WriteOptions
from logstore.spark.write.staging import StagedFile

VALUE = StructType().add("value", BinaryType())
FORMAT_ADVICE = ("format_new", "format-new", "logstore format", "open it for writing", "--lost")


@pytest.fixture
def dirs(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Make a closed store with a partition in each of two log dirs."""
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    with LogStore.open(paths, admin_socket=False) as store:
        for partition, path in enumerate(paths):
            log = store.create("t", partition, log_dir=path)
            log.extend([b"x"] * 10)
    yield paths
    views.forget(Place(paths))


def without_crc32c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a worker without the extra `kafka`."""
    for name in [
        name for name in sys.modules if name.startswith("logstore.format.kafka.record_batch")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "crc32c", None)


def tell(name: str, dirs: tuple[str, str]) -> Exception:
    """Run something as a task or as the planning would, and give what it raised."""
    options = read_options(
        {"logDirs": ",".join(dirs), "subscribe": "t", "minPartitions": "1"}, is_stream=False
    )
    with pytest.raises((LogStoreError, ImportError)) as caught:
        if name == "plan":
            survey(options)
        elif name == "plan one":
            survey(options._replace(topics=(), assigned=tuple(survey_keys(dirs))))
        elif name == "stage":
            rows = pa.RecordBatch.from_pydict({"value": [b"x"], "partition": [1]})
            BatchWriter(WriteOptions(dirs, "t", 0)).write(iter([rows]))
        else:
            raise AssertionError(name)
    return caught.value


def survey_keys(dirs: tuple[str, str]) -> list[Any]:
    """Name the partition of the second log dir."""
    from logstore import TopicPartition

    del dirs
    return [TopicPartition("t", 1)]


@pytest.mark.parametrize("what", ["plan", "plan one", "stage"])
@pytest.mark.parametrize("lacks", ["one path", "all paths", "an empty mount point"])
def test_regression_a_host_that_misses_a_path_names_itself_and_the_path(
    dirs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, what: str, lacks: str
) -> None:
    """It ended in "Kafka's record batches need crc32c", or in the advice to format the log dir."""
    without_crc32c(monkeypatch)
    missing = dirs if lacks == "all paths" else dirs[1:]
    for path in missing:
        Path(path).rename(f"{path}-elsewhere")
        if lacks == "an empty mount point":
            Path(path).mkdir()
    error = tell(what, dirs)
    text = str(error) + "".join(getattr(error, "__notes__", []))
    assert missing[0] in text
    assert f"on host {socket.gethostname()}" in text
    assert not [advice for advice in FORMAT_ADVICE if advice in text], text
    assert "crc32c" not in text
    assert text.count("(") == text.count(")"), text  # the first had no end
    assert what != "stage" or "failOnDataLoss" not in text  # it is no option of a write


@pytest.mark.parametrize("is_made", [False, True])
def test_regression_the_log_of_an_executor_has_no_advice_to_format(
    dirs: tuple[str, str], caplog: pytest.LogCaptureFixture, is_made: bool
) -> None:
    """The error had none, but the warning beside it: `reopen --format-new` or `--lost`."""
    Path(dirs[1]).rename(f"{dirs[1]}-elsewhere")
    if is_made:
        Path(dirs[1]).mkdir()
    views.view_of(Place(dirs))
    (text,) = caplog.messages
    assert text.startswith(f"log dir {dirs[1]} is offline: ")
    assert text.endswith(f"though the store is not new (on host {socket.gethostname()})")
    assert not [advice for advice in FORMAT_ADVICE if advice in text], text


def test_regression_a_task_that_misses_a_path_names_its_host(dirs: tuple[str, str]) -> None:
    """The driver has planned a piece that is on a disk which the worker does not have."""
    options = read_options({"logDirs": ",".join(dirs), "subscribe": "t"}, is_stream=False)
    spans = survey(options)
    starts = {key: span.start for key, span in spans.items()}
    ends = {key: span.end for key, span in spans.items()}
    piece = next(p for p in pieces_of(spans, starts, ends, options) if p.partition == 1)
    views.forget(options.place)
    Path(dirs[1]).rename(f"{dirs[1]}-elsewhere")
    with pytest.raises(LogStoreError) as caught:
        list(read_piece(piece, options))
    text = str(caught.value)
    assert dirs[1] in text and f"on host {socket.gethostname()}" in text
    assert not [advice for advice in FORMAT_ADVICE if advice in text], text
    views.forget(options.place)
    options = options._replace(fails_on_data_loss=False)
    assert list(read_piece(piece, options)) == []  # what it cannot see is skipped, as documented


def test_regression_a_row_of_verify_names_the_host_that_misses_a_path(
    dirs: tuple[str, str],
) -> None:
    """The row said that the log dir is offline; it was, on one worker of two."""
    place = Place(dirs)
    assert check_segment(place, "t", 1, 0) == []
    Path(dirs[1]).rename(f"{dirs[1]}-elsewhere")
    (row,) = check_segment(place, "t", 1, 0)
    assert dirs[1] in row[-1] and f"on host {socket.gethostname()}" in row[-1]
    assert not [advice for advice in FORMAT_ADVICE if advice in row[-1]], row[-1]
    assert row[0] == dirs[1] and "failOnDataLoss" not in row[-1]  # the row had no log dir


def test_regression_a_host_with_another_store_at_a_path_is_not_told_to_leave_it_out(
    dirs: tuple[str, str], tmp_path: Path
) -> None:
    """Without that log dir the records would be missing; the host needs the right disk."""
    Path(dirs[1]).rename(f"{dirs[1]}-elsewhere")
    LogStore.open(dirs[1], admin_socket=False).close()
    (row,) = check_segment(Place(dirs), "t", 0, 0)
    assert dirs[1] in row[-1] and "its store is" in row[-1]
    assert "leave" not in row[-1]


def test_a_dir_of_the_other_kind_is_told_without_opening_it(
    dirs: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its `meta.properties` says is enough; no library is needed for that."""
    broker = tmp_path / "broker"
    broker.mkdir()
    (broker / "meta.properties").write_text(
        "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n"
    )
    without_crc32c(monkeypatch)
    with pytest.raises(LogStoreError, match="set kafkaLogDirs=true") as caught:
        views.view_of(Place((str(broker),)))
    assert caught.value.facts["path"] == str(broker)


def planned(dirs: tuple[str, str], **options: str) -> Any:
    """Plan a write as Spark does."""
    given = {"logDirs": ",".join(dirs), "topic": "t", **options}
    return LogStoreSource(given).writer(VALUE, overwrite=False)


def test_regression_a_write_to_an_owned_store_fails_when_it_is_planned(
    dirs: tuple[str, str],
) -> None:
    """It failed at the commit, when all tasks had done their work."""
    with LogStore.open(dirs), pytest.raises(LogDirLockedError, match="owned by process"):
        planned(dirs)
    assert isinstance(planned(dirs), BatchWriter)
    with LogStore.open(dirs) as store:  # planning has kept no lock, and changed nothing
        assert store.recovery_report.was_clean


def test_regression_a_stream_to_an_owned_store_fails_when_it_is_planned(
    dirs: tuple[str, str],
) -> None:
    """Likewise."""
    source = LogStoreSource({"logDirs": ",".join(dirs), "topic": "t"})
    with LogStore.open(dirs), pytest.raises(LogDirLockedError, match="owned by process"):
        source.streamWriter(VALUE, overwrite=False)


def test_a_write_to_a_topic_that_is_not_there_fails_when_it_is_planned(
    dirs: tuple[str, str],
) -> None:
    """The error says how to have it created."""
    with pytest.raises(UnknownPartitionError, match="numPartitions"):
        planned(dirs, topic="other")
    assert isinstance(planned(dirs, topic="other", numPartitions="1"), BatchWriter)


def test_the_commit_names_the_host_that_misses_a_staged_file(dirs: tuple[str, str]) -> None:
    """A worker may have staged on a disk of its own that has the same path."""
    writer = planned(dirs)
    rows = pa.RecordBatch.from_pydict({"value": [b"x"], "partition": [1]})
    message = writer.write(iter([rows]))
    assert isinstance(message, StagedFile)
    Path(message.path).unlink()
    with pytest.raises(LogStoreError, match=f"on host {socket.gethostname()}"):
        writer.commit([message])


def test_regression_a_topic_made_anew_during_a_task_gives_no_record(
    tmp_path: Path, small_batches: None
) -> None:
    """The task read on in the new topic's files, which have the same names and offsets."""
    given = {"logDirs": str(tmp_path), "subscribe": "t", "failOnDataLoss": "false"}
    options = read_options(given, is_stream=False)
    old, new = b"old" * 100, b"new" * 100
    with LogStore.open([tmp_path], admin_socket=False) as store:

        def create(value: bytes) -> None:
            log = store.create("t", 0, config=LogConfig(segment_bytes=2048))
            for _ in range(40):
                log.append(value)

        create(old)
        reader = BatchReader(options)
        batches = (batch for piece in reader.partitions() for batch in reader.read(piece))
        found = next(batches).column("value").to_pylist()
        store.delete("t", 0)
        create(new)
        for batch in batches:
            found += batch.column("value").to_pylist()
    views.forget(options.place)
    assert set(found) == {old} and len(found) < 40
