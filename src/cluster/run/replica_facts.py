"""Store two facts of a replica in its log: its topic, and its own `whole_since`.

The rules of the replica need the two facts. The log itself stores the facts (`logstore`), so a move
of the replica keeps them.
"""

from __future__ import annotations

from cluster.pure import exchange as x
from cluster.registration import TopicIdentity
from cluster.run.log_spans import spans_of, start_of
from cluster.wire.topic_ids import bytes_of, text_of
from logstore import Log, LogConfig, LogStore, LogStoreError

OWN_SINCE, CREATED = "cluster.own_since", "cluster.topic_created"
COUNTS_FLUSHED, PLACED_SINCE = "cluster.counts_flushed", "cluster.placed_since"
ADOPTED = "cluster.topic_id"  # the topic of a log that had no topic id


def create(
    store: LogStore, name: str, number: int, effect: x.CreateReplica, config: LogConfig | None
) -> Log:
    """Create a log. Store the topic and the replica's own `whole_since` before the first record."""
    topic, dir_id, own_since = effect
    log = store.create(
        name, number, log_dir=dir_id, config=config, is_new=True,
        topic_id=bytes_of(topic.topic_id),
    )  # fmt: skip
    log.facts.update({OWN_SINCE: own_since, CREATED: topic.created})
    log.advance_high_watermark(log.log_start_offset)
    return log


def write_own_since(log: Log, effect: x.WriteOwnSince) -> None:
    """Write the replica's own `whole_since`."""
    log.facts.update(zip((OWN_SINCE, COUNTS_FLUSHED, PLACED_SINCE), effect, strict=True))


def write_topic(log: Log, topic: TopicIdentity) -> None:
    """Write the topic of a log that has no topic id yet."""
    log.facts.update({ADOPTED: topic.topic_id, CREATED: topic.created})


def topic_of(log: Log) -> TopicIdentity:
    """Read the topic of a log; its id is "" if it is not known."""
    topic_id = text_of(log.topic_id) or str(log.facts.get(ADOPTED, ""))
    return TopicIdentity(topic_id, _number(log.facts.get(CREATED)))


def own_since_of(log: Log) -> x.WriteOwnSince:
    """Read the values that `write_own_since` wrote."""
    facts = log.facts
    return x.WriteOwnSince(
        _number(facts.get(OWN_SINCE)),
        facts.get(COUNTS_FLUSHED) is True,
        _number(facts.get(PLACED_SINCE)),
    )


def describe(log: Log) -> x.Opened:
    """Describe a log. From now on, only the rules set the high watermark of the log."""
    log.advance_high_watermark(log.high_watermark)
    start_offset = log.log_start_offset  # StartRose reports later deletions
    spans, known = spans_of(log), own_since_of(log)
    return x.Opened(
        log.log_dir,
        topic_of(log),
        exists=True,
        spans=spans,
        flushed=min(log.recovery_point, spans[-1][1]) if spans else 0,
        high_watermark=log.high_watermark,
        own_since=known.own_since,
        is_incomplete=not _is_writable(log),
        counts_flushed=known.counts_flushed,
        placed_since=known.placed_since,
        start=start_of(log),
        log_start_offset=start_offset,
    )


def _is_writable(log: Log) -> bool:
    """Report whether a log accepts changes. An incomplete or damaged log refuses changes."""
    try:
        # this call cuts nothing, but it shows whether the log refuses changes
        log.truncate_to(log.log_end_offset)
    except LogStoreError:
        return False
    return True


def _number(fact: object) -> int:
    """Read a fact that is a number; 0 if there is none."""
    return fact if isinstance(fact, int) else 0
