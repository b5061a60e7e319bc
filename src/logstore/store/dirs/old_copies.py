"""Recognise an old copy of a log dir: another log dir has recorded a later generation for it.

    recognise   compare each log dir's generation with the generations that other log dirs, and this
                process, have recorded for the log dir
    decide      make the replicas of an old copy INCOMPLETE: readable, not writable
                (`store/doubts`)
    conclude    write the list of replicas in doubt, or begin a new generation; the other dirs then
                record this generation
    close       in a clean close, each dir records the others' last generations (`farewell`)

While a log dir counts as an old copy, it is OUTDATED: it can be read, but not changed. If an old
copy took new records, they would be lost when the newer disk is mounted again. For the rest of the
store, an old copy counts as a missing log dir. If a replica is not found, it may be on the newer
disk. The log dir is OUTDATED until `doubts/acceptance` accepts it.

`disk/documents/generations` describes the files, and explains why a crash causes no false alarm.
Old copies are not recognised in two cases. If a store has only one log dir, no other dir knows its
generation. If all log dirs are rolled back to the same moment, no log dir contradicts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.generations import Generation, Seen
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event, LogDirState
from logstore.errors import LogStoreError
from logstore.log import host
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.dirs.parallel import for_each
from logstore.store.replicas import Replicas, key_of

# The number of other log dirs that record the recovery points of a log dir.
# Recovery points show which records an old copy lacks.
WITNESSES = 2

REMEDY = (
    "mount the disk with the latest state of the log dir, then reopen the log dir. If that disk is "
    "lost for good, promote (logstore promote) or delete each replica in doubt; after the first "
    "such decision, this copy counts as the log dir, and the other disk as an old copy"
)
LEFT_REMEDY = "promote (logstore promote) or delete each replica of it that is in doubt"
GIVE_UP = (
    "mount the disk with the latest state of the log dir, then reopen the log dir. If that disk "
    "is lost for good, add this copy to the store: logstore take-offline {path}, logstore "
    "remove-dir --lost {path}, and logstore add-dir {path} --format-new"
)


# --- generations that other log dirs recorded -----------------------------------------------------


def _seen_of(replicas: Replicas, log_dir: LogDir) -> Iterator[tuple[str, Seen]]:
    """Return the recorded generations of a log dir, each with the dir that recorded it."""
    if log_dir.generation.held is not None:
        yield "this process", log_dir.generation.held
    for other in replicas.log_dirs:
        if other is not log_dir:
            seen = other.generation.seen.get(log_dir.directory_id)
            if seen is not None:
                yield other.path, seen


def _rank(generation: Generation) -> tuple[int, int]:
    return generation.number, generation.step


def last_seen(replicas: Replicas, log_dir: LogDir) -> Generation | None:
    """Return the last known generation of a log dir, from its own files or from other log dirs."""
    known = [seen.generation for _, seen in _seen_of(replicas, log_dir)]
    current = log_dir.generation.current
    return max([*known, *([current] if current else [])], key=_rank, default=None)


def known_offsets(replicas: Replicas, log_dir: LogDir) -> Mapping[TopicPartition, int]:
    """Return the last known recovery points of a log dir; an empty dict if none are known."""
    newest = _last_offsets(replicas, log_dir)
    return {} if newest is None or newest.offsets is None else newest.offsets


def _last_offsets(replicas: Replicas, log_dir: LogDir) -> Seen | None:
    kept = [seen for _, seen in _seen_of(replicas, log_dir) if seen.offsets is not None]
    return max(kept, key=lambda seen: _rank(seen.generation), default=None)


def last_end(replicas: Replicas, log_dir: LogDir, key: TopicPartition, log: Log) -> int:
    """Return a log's last known recovery point; -1 if that is unknown, or was lowered later."""
    seen = _last_offsets(replicas, log_dir)
    if seen is None or host.is_lowered_since(log, log_dir.directory_id, seen.generation):
        return -1
    return (seen.offsets or {}).get(key, -1)


def recognise(replicas: Replicas) -> None:
    """Mark each open log dir that is an old copy.

    Before this call, the caller must read the files of all log dirs.

    A log dir that is already open can also be recognised as an old copy, if a returned log dir has
    recorded a later generation for it.
    """
    for log_dir in replicas.log_dirs:
        if not log_dir.is_offline:
            _recognise_one(replicas, log_dir)


def _recognise_one(replicas: Replicas, log_dir: LogDir) -> None:
    """Check whether a log dir is an old copy.

    If an earlier start recognised the old copy, only the replicas in its list are in doubt, unless
    another log dir has recorded an even later generation since that start.
    """
    own = log_dir.generation
    ahead = [(who, seen.generation) for who, seen in _seen_of(replicas, log_dir)]
    ahead = [(who, generation) for who, generation in ahead if own.is_behind(generation)]
    if own.is_taken_in:
        own.is_accepted = bool(own.doubts)
    elif ahead:
        last = max((generation for _, generation in ahead), key=_rank)
        at = own.doubted_at
        own.is_all_in_doubt |= not own.doubts or at is None or _rank(last) > _rank(at)
        names = ", ".join(sorted(who for who, _ in ahead))
        count_as_old(
            log_dir,
            f"log dir {log_dir.path} is an old copy, of generation {own.current}: {names} "
            f"recorded later generations of this log dir, up to {last}",
        )
    if own.is_accepted:
        own.old = f"log dir {log_dir.path} was an old copy when it was accepted as the log dir"
    elif own.doubts and not own.old:
        count_as_old(log_dir, short(log_dir))


def count_as_old(log_dir: LogDir, why: str) -> None:
    """Mark a log dir as an old copy, so that nothing in the log dir is changed."""
    log_dir.generation.old, log_dir.generation.is_accepted = why, False
    log_dir.change(Event.OUTDATED, f"{why}; {REMEDY}", has_remedy=True)


def short(log_dir: LogDir) -> str:
    """Return the message that durable records are missing in a log dir."""
    return f"log dir {log_dir.path} is an old copy: durable records are missing in it"


def remedy(log_dir: LogDir) -> str:
    """Return advice about the replicas in doubt of a log dir."""
    return REMEDY if log_dir.is_outdated else LEFT_REMEDY


def explain(log_dir: LogDir) -> None:
    """Add the replicas in doubt to the reason why an old copy is OUTDATED."""
    doubts = ", ".join(sorted(str(key) for key in log_dir.generation.doubts))
    todo = f"in doubt: {doubts}; {REMEDY}" if doubts else GIVE_UP.format(path=log_dir.path)
    log_dir.explain(LogDirState.OUTDATED, f"{log_dir.generation.old}; {todo}")


# --- writing generations --------------------------------------------------------------------------


def note_unsure(replicas: Replicas) -> None:
    """At a start, write down the missing log dirs that may have replicas without a catalog entry.

    Catalogs are written at checkpoints and at a clean close. So if the owner was killed, no catalog
    contains the creations and moves after the last checkpoint.
    """
    serving = [log_dir for log_dir in replicas.log_dirs if not log_dir.is_away]
    away = {log_dir.directory_id for log_dir in replicas.log_dirs if log_dir.is_away}
    away |= set(replicas.missing_ids)
    unsure = frozenset[str]().union(*(log_dir.generation.unsure for log_dir in serving))
    if any(not log_dir.was_clean for log_dir in serving):
        unsure |= away - {""}
    replicas.catalog.unsure_ids = unsure & away


def has_witness(replicas: Replicas) -> bool:
    """Check whether the store has more than one log dir."""
    return len(replicas.log_dirs) + len(replicas.missing_ids) > 1


def conclude(replicas: Replicas, loaded: Sequence[LogDir], *, is_start: bool) -> None:
    """Write the replicas in doubt, or a new generation, to each loaded log dir.

    When the generations are written, the other log dirs record them. If the disk fails during a
    write, its log dir goes offline. If a log dir is full even after its ballast was removed, it
    keeps its generation.
    """
    if is_start:
        note_unsure(replicas)

    def begin(log_dir: LogDir) -> None:
        own, last = log_dir.generation, last_seen(replicas, log_dir)
        doubts = {
            key: max(end_offset, own.found.get(key, -1))
            for key, end_offset in {**own.found, **own.doubts}.items()
            if _is_in_doubt(replicas, key, log_dir)
        }
        if log_dir.is_outdated:
            # Write this even if `doubts` is empty.
            # The current disk may have replicas that this copy lacks.
            own.doubt(doubts, last)
            explain(log_dir)
        elif has_witness(replicas):
            offsets = {key_of(log): log.recovery_point for log in replicas.on(log_dir)}
            log_dir.ballast.use(partial(own.begin, last, offsets, doubts))

    replicas.catalog.unsure_ids -= {
        log_dir.directory_id for log_dir in loaded if not log_dir.is_away
    }
    _each(loaded, begin)
    witness_all(replicas)


def witness_all(replicas: Replicas) -> None:
    """Write the generations of all log dirs into the other log dirs that work.

    A log dir is written only if one of the generations to record has changed.
    """

    def work(log_dir: LogDir) -> None:
        log_dir.ballast.use(partial(witness, replicas, log_dir))

    _each(replicas.log_dirs, work)


def _is_in_doubt(replicas: Replicas, key: TopicPartition, log_dir: LogDir) -> bool:
    """Check whether a replica is known, and no other log dir has the open copy of it."""
    replica = replicas.opened.get(key)
    return key in replicas and (replica is None or replica.log_dir is log_dir)


def _each(log_dirs: Iterable[LogDir], work: Callable[[LogDir], None]) -> None:
    def at(log_dir: LogDir) -> None:
        try:
            with call(log_dir.path, SYNCING):
                work(log_dir)
        except OSError as error:
            log_dir.failed(error)
        except LogStoreError:
            pass  # the log dir is offline now

    serving = [log_dir for log_dir in log_dirs if not log_dir.is_refusing]
    outcomes = for_each(serving, at, is_given_up=lambda log_dir: log_dir.is_suspect)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def checkpoint(
    replicas: Replicas, log_dir: LogDir, offsets: Mapping[TopicPartition, int], *, is_last: bool
) -> None:
    """Advance a log dir's generation if its recovery points changed. Raises OSError."""
    if has_witness(replicas) and (is_last or offsets != log_dir.generation.offsets):
        log_dir.generation.step(offsets)


def witness(replicas: Replicas, log_dir: LogDir) -> None:
    """If the generations of other log dirs changed, write them to one log dir. Raises OSError."""
    # The generation of a log dir that was given up stays recorded.
    # If the log dir is added again, its generation continues after the recorded generation.
    # Another log dir may be missing at that time.
    # When the missing log dir returns, its record is older than the added log dir.
    # So this record does not make the added log dir an old copy.
    seen = {
        id_: one if _is_member(replicas, id_) else one._replace(offsets=None)
        for id_, one in log_dir.generation.seen.items()
    }
    ids = sorted(other.directory_id for other in replicas.log_dirs if other.directory_id)
    for other in replicas.log_dirs:
        own = other.generation
        if other is log_dir or other.is_offline or own.is_frozen or own.current is None:
            continue
        before, at = seen.get(other.directory_id), ids.index(other.directory_id)
        if before is not None and _rank(before.generation) > _rank(own.current):
            continue
        neighbours = [ids[(at + 1 + n) % len(ids)] for n in range(WITNESSES)]
        offsets = own.offsets if log_dir.directory_id in neighbours else None
        seen[other.directory_id] = Seen(own.current, offsets)
    others = [other for other in replicas.log_dirs if other is not log_dir]
    _take_of_away(replicas, others, seen)
    paths = {id_: p for id_, p in log_dir.generation.paths.items() if _is_member(replicas, id_)}
    for id_ in replicas.ids_away() - {*paths, log_dir.directory_id}:
        path = replicas.last_path_of(id_)
        paths |= {} if path is None else {id_: path}
    paths |= {o.directory_id: o.path for o in others if o.directory_id and not o.is_offline}
    unsure = frozenset(id_ for id_ in replicas.catalog.unsure_ids if _is_member(replicas, id_))
    if has_witness(replicas):
        log_dir.generation.witness(seen, paths, unsure)


def _take_of_away(replicas: Replicas, others: Sequence[LogDir], seen: dict[str, Seen]) -> None:
    """For each missing log dir, add the generation that other log dirs have recorded."""
    away = replicas.ids_away() | {other.directory_id for other in others if other.is_outdated}
    for other in others:
        for id_, one in other.generation.seen.items():
            before = seen.get(id_)
            if id_ in away and (before is None or _rank(before.generation) < _rank(one.generation)):
                seen[id_] = one


def _is_member(replicas: Replicas, directory_id: str) -> bool:
    return directory_id in replicas.missing_ids or any(
        log_dir.directory_id == directory_id for log_dir in replicas.log_dirs
    )
