"""Decide which small files of a log are used: whether they are its own, and where it starts.

Three files say where a log starts: `partition.metadata`, `leader-epoch-checkpoint`, and the log
dir's `log-start-offset-checkpoint`. A new start is written durably into the second, then durably
into the first, and some time later into the third. So normally the second is never below the first,
and the third never above it. A file that is older, of an earlier topic of the same name or of
another log breaks that order.

| the first (M), the second (E), the third (C) | believed |
|---|---|
| M = E | M |
| E > M: a crash came between the two, or M is old | M; if C > M too, the smaller of E and C |
| E < M, C is not below M: E is old | M |
| E < M otherwise: nothing confirms M | E |
| no E | M |
| no M | E, else C |

If the first segment begins after the start chosen by this table, and one of the three files names a
start that is not before that segment, that file is believed: the records before it are gone anyway.
**A start that only one file names hides records and deletes nothing.**
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
    """What the three files say about the log start; None: no usable value."""

    metadata: int | None
    epochs: int | None
    checkpoint: int | None


class LogStart(NamedTuple):
    """Where a log starts.

    Attributes:
        is_confirmed: two files say that nothing before it is to be read, so earlier records may be
            deleted.
        doubt: what contradicts it, for the report; or "".
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

    If two are equally frequent, `partition.metadata` decides; without it the segments do.

    Args:
        others: the topic ids in the other small files; None: unknown.
        trailers: gives those in the index files; called only if there is a doubt.
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
    """Read the topic ids that the last index files name, of at most two segments."""
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
