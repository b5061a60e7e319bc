"""Decide where a log starts, and to which topic id its small files belong.

Three files name the log start: `partition.metadata` (M), `leader-epoch-checkpoint` (E), and the log
dir's `log-start-offset-checkpoint` (C). A new log start is written durably into E, then durably
into M, and some time later into C. So normally E is never below M, and C is never above M. This
order is broken by a file that is older, or of an earlier topic of the same name, or of another log.

| what the files name | believed |
|---|---|
| M = E | M |
| E > M: a crash came between the writes, or M is old | M; if C > M too, the smaller of E and C |
| E < M, C is not below M: E is old | M |
| E < M otherwise: nothing confirms M | E |
| E is missing | M |
| M is missing | E; if E is missing too, C |

If the first segment begins after the log start of this table, and one of the three files names a
start that is not before that segment, that file is believed: the records before the segment are
gone anyway. **If only one file names a start, records before it are hidden, but not deleted.**
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.segment import Segment
from logstore.log.segments.trailer import read_trailer

TRAILERS_ASKED_MAX = 2


class Words(NamedTuple):
    """The log starts that the three files name; None if a file names none that can be used."""

    metadata: int | None
    epochs: int | None
    checkpoint: int | None


class LogStart(NamedTuple):
    """Where a log starts.

    Attributes:
        is_confirmed: two files name this start or a later one, so earlier records may be deleted.
        doubt: what contradicts this start, for the report; or "".
    """

    offset: int
    is_confirmed: bool
    doubt: str = ""


def choose(words: Words, first_base: Callable[[], int]) -> LogStart:
    """Choose the log start to use; see the table in this module's docstring.

    Args:
        first_base: gives the base offset of the first segment.
    """
    told, epochs, checkpoint = words
    if told is None:
        known = epochs if epochs is not None else checkpoint
        return LogStart(max(known or 0, first_base()), epochs is not None and epochs == checkpoint)
    if epochs == told or (epochs is None and not told):
        return LogStart(told, True)
    if epochs is None:
        start = LogStart(told, checkpoint is not None and checkpoint >= told)
    else:
        start = _of_two(told, epochs, checkpoint)
    base = first_base()
    gone = [word for word in words if word is not None and word >= base > start.offset]
    if gone:
        doubt = (
            f"another file says that the log starts at {min(gone)}, and no segment before {base} "
            "is left"
        )
        return LogStart(min(gone), False, doubt)
    return start


def _of_two(told: int, epochs: int, checkpoint: int | None) -> LogStart:
    """Choose the start if the two files of the log contradict each other."""
    known = -1 if checkpoint is None else checkpoint
    if epochs > told and known > told:
        doubt = f"partition.metadata says {told} and is older than the files that say more"
        return LogStart(min(epochs, known), True, doubt)
    if epochs > told:
        doubt = f"a deletion of the records before {epochs} was not completed"
        return LogStart(told, True, doubt)
    if known >= told:
        doubt = f"leader-epoch-checkpoint says {epochs} and is older than the files that say more"
        return LogStart(told, True, doubt)
    doubt = f"partition.metadata says {told}, which leader-epoch-checkpoint does not confirm"
    return LogStart(epochs, True, doubt)


# --- which log the files belong to ----------------------------------------------------------------


def choose_topic_id(
    metadata: bytes | None, others: Iterable[bytes | None], trailers: Callable[[], Sequence[bytes]]
) -> bytes | None:
    """Choose the topic id that most files name; None if none names one.

    If two ids are equally frequent, that of `partition.metadata` is chosen; without that file, the
    one that a segment names.

    Args:
        others: the topic ids in the other small files; None if unknown.
        trailers: gives the topic ids in the index files; called only if the files do not agree.
    """
    votes = Counter(one for one in others if one is not None)
    if metadata is not None and set(votes) == {metadata}:
        return metadata
    asked = list(trailers())
    votes.update(asked)
    if metadata is not None:
        votes[metadata] += 1
    ranked = votes.most_common()
    best = [one for one, count in ranked if count == ranked[0][1]]
    for one in (metadata, *asked):
        if one in best:
            return one
    return best[0] if best else None


def topic_ids_of_segments(
    directory: str, partition: int, rows: Sequence[SegmentFiles]
) -> list[bytes]:
    """Read the topic ids in the index files of the last two segments with valid ones."""
    found: list[bytes] = []
    for row in reversed(rows):
        path = Segment(directory, row.base_offset).index_path
        trailer = read_trailer(path, row.index_bytes)
        if trailer is not None and (trailer.partition, trailer.base_offset) == (
            partition,
            row.base_offset,
        ):
            found.append(trailer.topic_id)
            if len(found) == TRAILERS_ASKED_MAX:
                break
    return found
