"""Decide where a log starts, and which topic id its small files have.

Three files have the log start offset: `partition.metadata` (M), `leader-epoch-checkpoint` (E), and
the log dir's `log-start-offset-checkpoint` (C). A new log start is first written durably into the
epochs' file (E), then durably into the metadata (M), and some time later into the checkpoint (C).
So C <= M <= E is the normal order of the three log starts. If this order is broken, one of the
files is old, or belongs to another log, perhaps of an earlier topic of the same name.

| log start offsets in the files | chosen log start offset |
|---|---|
| M = E | M |
| E > M: a crash came between the writes, or M is old | M; if C > M too, the smaller of E and C |
| E < M, C is not below M: E is old | M |
| E < M, C is below M or missing: nothing confirms M | E |
| E is missing | M |
| M is missing | E; if E is missing too, C |

The first segment may begin after the log start that this table gives. In this case, if one of the
three files has a start at or after the base offset of the first segment, this start is used,
because the records before the first segment do not exist any more. **If only one file has a start,
records before this start are hidden, but not deleted.**
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
    """The log start offset in each of the three files; None for a file without a usable offset."""

    metadata: int | None
    epochs: int | None
    checkpoint: int | None


class LogStart(NamedTuple):
    """Where a log starts.

    Attributes:
        is_confirmed: whether two files have this start or a later start. If this is False, no
            record before this start may be deleted.
        doubt: a sentence for the report, which says what contradicts this start; "" means no
            contradiction.
    """

    offset: int
    is_confirmed: bool
    doubt: str = ""


def choose(words: Words, first_base: Callable[[], int]) -> LogStart:
    """Choose the log start to use; see the table in this module's docstring.

    Args:
        first_base: a function that returns the base offset of the first segment.
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
            f"another file says that the log starts at {min(gone)}, and the log has no segment "
            f"before offset {base}"
        )
        return LogStart(min(gone), False, doubt)
    return start


def _of_two(told: int, epochs: int, checkpoint: int | None) -> LogStart:
    """Choose the start if the two files in the log's directory have different starts."""
    known = -1 if checkpoint is None else checkpoint
    if epochs > told and known > told:
        doubt = (
            f"partition.metadata has the log start {told}, but is older than files with a "
            "later start"
        )
        return LogStart(min(epochs, known), True, doubt)
    if epochs > told:
        doubt = f"a deletion of the records before {epochs} was not completed"
        return LogStart(told, True, doubt)
    if known >= told:
        doubt = (
            f"leader-epoch-checkpoint has the log start {epochs}, but is older than files "
            "with a later start"
        )
        return LogStart(told, True, doubt)
    doubt = (
        f"partition.metadata has the log start {told}, which leader-epoch-checkpoint does not "
        "confirm"
    )
    return LogStart(epochs, True, doubt)


# --- which log the files belong to ----------------------------------------------------------------


def choose_topic_id(
    metadata: bytes | None, others: Iterable[bytes | None], trailers: Callable[[], Sequence[bytes]]
) -> bytes | None:
    """Choose the topic id that most files have; return None if no file has a topic id.

    If two ids are equally frequent, the id in `partition.metadata` is chosen. If
    `partition.metadata` is missing, the topic id of a segment is chosen.

    Args:
        metadata: the topic id in `partition.metadata`; None if the file has no topic id.
        others: the topic ids in the other small files; None for a file without a topic id.
        trailers: a function that returns the topic ids in the index files. This function is not
            called if the other small files confirm the id in `partition.metadata`.
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
    """Read the topic ids from the last two index files that are valid."""
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
