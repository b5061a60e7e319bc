"""Make the engine less careful, one sync or one order at a time; a history has to show each.

Some are changes of the code, made while a history is written and looked at; the others leave syncs
out of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from logstore import Log
from logstore.disk import bulk, files
from logstore.disk.documents.checkpoint import RECOVERY_POINTS
from logstore.disk.documents.offset_checkpoints import OffsetCheckpoints
from logstore.log.removal import retention, truncation
from logstore.log.write import flush, high_watermark
from logstore.store import creation
from logstore.store.dirs.membership import Membership
from logstore.store.upkeep import keeper
from support.crash_model import Op


def unsynced_tree(path: str, *_: object) -> None:
    bulk._remove_tree(path)


def unsynced_dir(path: str) -> None:
    files.mkdir(path)


def unsynced_replace(path: str, data: bytes, *_: object) -> None:
    """Replace a small file without a sync of its name."""
    files.write_new(path + ".tmp", data)
    files.rename(path + ".tmp", path)


def files_first(state: Any, offset: int) -> None:
    """Remove the files of a log's beginning, and only then write its start down."""
    segments = state.segments
    gone = tuple(one for one in segments[:-1] if one.end_offset <= offset)
    retention._hide(state, offset, gone)
    retention._remove_files(state, gone)
    files.sync_dir(state.directory)
    flush.set_metadata(state, log_start_offset=offset)


def lying_point(self: Log) -> int:
    """Give the end of the log for what is flushed of it."""
    return self.log_end_offset


def only_points(self: OffsetCheckpoints, kind: str, key: Any, offset: int) -> None:
    """Lower recovery points before a truncation, and leave high watermarks."""
    if kind == RECOVERY_POINTS:
        LOWER(self, kind, key, offset)


def in_memory(state: Any, offset: int) -> None:
    """Bound a log without a word on the disk."""
    state.replication.replicated_to = state.within(offset)


def untold(self: Membership, besides: object = None) -> None:
    """Tell no other log dir which of them belong to the store."""
    self.note_missing()


LOWER = OffsetCheckpoints.lower

# What is replaced, and by what.
CHANGES: dict[str, tuple[Any, str, Any]] = {
    "a truncation does not sync what it keeps": (flush, "sync_segments", lambda *_: None),
    "the epochs outlive a truncation": (truncation, "_forget_epochs", lambda *_: None),
    "the removal of a directory is not synced": (bulk, "remove_tree", unsynced_tree),
    "a purge syncs nothing": (keeper, "purge_tree", unsynced_tree),
    "a deletion takes no other copy along": (creation, "companions", lambda *_: []),
    "a new directory's name is not synced": (files, "make_dir", unsynced_dir),
    "a small file's name is not synced": (files, "write_atomically", unsynced_replace),
    "files go before the log start is written": (retention, "_start_at", files_first),
    "a checkpoint says more than is flushed": (Log, "recovery_point", property(lying_point)),
    "a deletion is not noted": (creation, "_note_deletion", lambda _: None),
    "a log dir leaves unsaid": (Membership, "_tell", untold),
    "a truncation leaves the high watermark": (OffsetCheckpoints, "lower", only_points),
    "a log is replicated in memory only": (high_watermark, "_begin", in_memory),
}


@contextmanager
def changed(name: str) -> Iterator[None]:
    """Run worse code."""
    if name not in CHANGES:
        yield
        return
    place, attribute, worse = CHANGES[name]
    with patch.object(place, attribute, worse):
        yield


def without(is_left_out: Callable[[Op, str, Op], bool]) -> Callable[[list[Op]], list[Op]]:
    """Leave operations out of a record, by what they are, of which file, and what came before."""

    def worse(ops: list[Op]) -> list[Op]:
        paths = {op[2]: op[1] for op in ops if op[0] == "create"}
        kept, before = [], ops[0]
        for op in ops:
            path = str(paths.get(op[1], op[1])) if op[0] != "mark" else ""
            if not is_left_out(op, path, before):
                kept.append(op)
            if op[0] != "mark":
                before = op
        return kept

    return worse


def is_log_file(path: str) -> bool:
    return path.endswith((".log", ".log.tmp"))


# A record without some of its syncs.
RECORDS: dict[str, Callable[[list[Op]], list[Op]]] = {
    "no sync of data": without(lambda op, path, _: op[0] == "sync" and is_log_file(path)),
    "no sync of small files": without(
        lambda op, path, _: op[0] == "sync" and not is_log_file(path)
    ),
    "no sync of names in a partition": without(
        lambda op, path, _: op[0] == "sync dir" and path.count("/") > 1
    ),
    "no sync of names in a log dir": without(
        lambda op, path, _: op[0] == "sync dir" and path.count("/") == 1
    ),
    "no sync after a deletion's rename": without(
        lambda op, _, before: (
            op[0] == "sync dir" and before[0] == "rename" and before[2].endswith(".delete")
        )
    ),
    "no sync of a directory's removal": without(
        lambda op, path, before: (
            op[0] == "sync dir" and before[0] == "remove" and path.count("/") == 1
        )
    ),
}
MUTANTS = (*CHANGES, *RECORDS)

# Where among all steps few would show a mutant: those that do.
CUTTING = {"create": 3, "append": 30, "extend": 10, "truncate": 9, "epoch": 4, "kill": 3}
STARTING = {"create": 3, "append": 20, "extend": 8, "flush": 6, "delete_before": 10}
KEEPING = {"create": 3, "append": 20, "extend": 10, "keep_house": 10, "flush": 2, "kill": 1}
REMOVING = {"create": 6, "extend": 6, "move": 12, "purge": 14, "delete": 8, "end_move": 4}
REPLICATING = {"create": 3, "extend": 12, "replicated": 14, "truncate": 9, "keep_house": 6}
LIKELY = {
    "a truncation does not sync what it keeps": CUTTING,
    "the epochs outlive a truncation": CUTTING,
    "files go before the log start is written": STARTING,
    "a checkpoint says more than is flushed": KEEPING,
    "a purge syncs nothing": REMOVING,
    "the removal of a directory is not synced": REMOVING,
    "a deletion takes no other copy along": REMOVING,
    "no sync of a directory's removal": REMOVING,
    "a truncation leaves the high watermark": REPLICATING,
    "a log is replicated in memory only": REPLICATING,
}
