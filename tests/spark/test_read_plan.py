"""Which partitions and offsets a batch covers, and in which pieces; no Spark is started for it."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from logstore import LogConfig, LogStore
from logstore.disk.log_dir import LogDir
from logstore.spark.options import read_options
from logstore.spark.read import read_plan, views
from logstore.spark.read.read_plan import Piece
from logstore.spark.read.views import forget
from logstore.spark.source import BatchReader
from logstore.store import view
from logstore.store.start import listing
from mover import MoveState, ReplicaMover

Plan = Callable[..., list[tuple[str, int, int]]]


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[Plan]:
    """Make a store with `t-0`, `t-1` and `u-0`, 100 records each; give what plans a read."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        for number, (topic, partition) in enumerate((("t", 0), ("t", 1), ("u", 0))):
            store.create(topic, partition, log_dir=dirs[number % 2]).extend([b"value"] * 100)
    made: list[BatchReader] = []

    def plan(**given: object) -> list[tuple[str, int, int]]:
        texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in given.items()}
        options = read_options({"logDirs": ",".join(map(str, dirs)), **texts}, is_stream=False)
        made.append(BatchReader(options))
        pieces = made[-1].partitions()
        found = [piece for piece in pieces if isinstance(piece, Piece)]
        assert len(found) == len(pieces)
        return [(f"{piece.topic}-{piece.partition}", piece.start, piece.end) for piece in found]

    yield plan
    for reader in made:
        forget(reader._options.place)


@pytest.mark.parametrize(
    "name",
    ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"],
)
def test_a_bound_of_a_partition_that_is_not_read_is_refused(plan: Plan, name: str) -> None:
    """As by Kafka's source: a topic that was not subscribed to, a partition that is not there."""
    mine = {"0": 0, "1": 0}
    assert len(plan(subscribe="t", **{name: {"t": mine}})) in (0, 2)
    for other in ({"t": mine, "u": {"0": 0}}, {"t": {**mine, "7": 0}}):
        with pytest.raises(
            ValueError, match=rf"{name} names (u-0|t-7), which is not read. .* t-0, t-1"
        ):
            plan(subscribe="t", **{name: other})


def test_what_may_be_lost_may_have_a_bound(plan: Plan) -> None:
    """With failOnDataLoss=false a partition that was selected may be away, a slip is a slip."""
    bound = {"t": {"0": 10, "1": 20, "7": 30}}
    lossy = {"startingOffsets": bound, "failOnDataLoss": "false"}
    for how in ({"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": {"t": [0, 1, 7]}}):
        assert plan(**how, **lossy) == [("t-0", 10, 100), ("t-1", 20, 100)]
    with pytest.raises(ValueError, match="startingOffsets names t-7, which is not read"):
        plan(assign={"t": [0, 1]}, **lossy)


def test_a_start_behind_its_end_is_refused(plan: Plan) -> None:
    """However each was said; both at one place are an empty range."""
    start = {"t": {"0": 50, "1": 0}}
    for end in ({"endingOffsets": {"t": {"0": 49, "1": -1}}}, {"endingTimestamp": "0"}):
        with pytest.raises(
            ValueError, match=r"t-0 is to be read from offset 50 to (49|0): the start"
        ):
            plan(subscribe="t", startingOffsets=start, **end)
    assert plan(subscribe="t", startingOffsets=start, endingOffsets=start) == []


def test_no_piece_has_more_records_than_wanted(plan: Plan) -> None:
    """A partition is cut into equal ranges, within a stored batch too."""
    assert plan(assign={"t": [0]}, maxRecordsPerPartition="34") == [
        ("t-0", 0, 33), ("t-0", 33, 66), ("t-0", 66, 100)
    ]  # fmt: skip
    assert len(plan(subscribe="t,u", maxRecordsPerPartition="100")) == 3
    assert len(plan(subscribe="t,u", maxRecordsPerPartition="1")) == 300


def test_a_store_that_was_made_anew_is_not_taken_for_the_old_one(
    plan: Plan, tmp_path: Path
) -> None:
    """A process that has looked at the paths before looks anew."""
    assert len(plan(subscribe="t")) == 2
    for name in "ab":
        shutil.rmtree(tmp_path / name)
    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
        store.create("t", 0).extend([b"value"] * 7)
    assert plan(subscribe="t") == [("t-0", 0, 7)]


def test_pieces_of_a_partition_are_of_one_size(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is what is left over: a small task costs nearly as much as a large one."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
        log = store.create("cut", 0, config=LogConfig(index_interval_bytes=1024))
        for _ in range(410):
            log.append(bytes(500))
        monkeypatch.setattr(read_plan, "PIECE_BYTES", log.size_bytes * 100 // 410)
    pieces = plan(subscribe="cut", startingOffsets="earliest")
    sizes = [end - start for _, start, end in pieces]
    assert sum(sizes) == 410 and len(sizes) == 5 and max(sizes) - min(sizes) < 20


def test_a_worker_settles_in_at_its_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of Spark's that runs tasks, once; in none of the user's own."""
    frozen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("here"))
    for context, times in ((None, 0), (object(), 1)):
        monkeypatch.setattr(TaskContext, "get", lambda context=context: context)
        views.settle_in.cache_clear()
        for _ in range(3):
            views.settle_in()
        assert len(frozen) == times
    views.settle_in.cache_clear()


@pytest.mark.parametrize(("source", "target"), ["ab", "ba"])
def test_a_replica_that_moves_while_the_log_dirs_are_listed_is_read(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    """One after the other: it is in neither of them then, or in both."""
    key = next(k for k in (("t", 0), ("t", 1)) if (tmp_path / source / f"t-{k[1]}").exists())
    expected = plan(subscribe="t", startingOffsets="earliest")
    dirs = [tmp_path / "a", tmp_path / "b"]
    listed: list[LogDir] = []
    with LogStore.open(dirs, admin_socket=False) as store, ReplicaMover(store) as mover:

        def list_log_dir(log_dir: LogDir) -> Any:
            found = listing.list_log_dir(log_dir)
            listed.append(log_dir)
            if len(listed) == 1:
                assert mover.move(*key, tmp_path / target).wait() is MoveState.DONE
            return found

        monkeypatch.setattr(view, "list_log_dir", list_log_dir)
        assert plan(subscribe="t", startingOffsets="earliest") == expected
    assert len(listed) > 1
