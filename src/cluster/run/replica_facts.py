"""Create, read, cut and delete the log of a replica.

The log itself stores two facts that the rules of the replica need: its topic, and its own
`whole_since`. So a move of the replica keeps them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.disks.log_spans import spans_of, start_of
from cluster.pure import exchange as x
from cluster.registration import TopicIdentity
from cluster.run.replica_exchange import Outbox
from cluster.wire.topic_ids import bytes_of, text_of
from logstore import Log, LogConfig, LogStore, LogStoreError, UnknownPartitionError

LOG = logging.getLogger("cluster")
OWN_SINCE, CREATED = "cluster.own_since", "cluster.topic_created"
COUNTS_FLUSHED, PLACED_SINCE = "cluster.counts_flushed", "cluster.placed_since"
PLACED_IN = "cluster.placed_in"  # the directory id of the log dir for which both numbers hold
UNKNOWN_DIR = "?"  # the name of a log dir that this store does not have
ADOPTED = "cluster.topic_id"  # the topic of a log that had no topic id


def create(
    store: LogStore,
    name: str,
    number: int,
    effect: x.CreateReplica,
    config_of: Callable[[str], LogConfig | None],
) -> Log:
    """Create a log. Store the topic and the replica's own `whole_since` before the first record."""
    topic, dir_id, own_since = effect
    log = store.create(
        name, number, log_dir=dir_id, config=config_of(name), is_new=True,
        topic_id=bytes_of(topic.topic_id),
    )  # fmt: skip
    placed_in = _directory_id(store, dir_id)
    log.facts.update({OWN_SINCE: own_since, CREATED: topic.created, PLACED_IN: placed_in})
    log.advance_high_watermark(log.log_start_offset)
    return log


def write_own_since(store: LogStore, log: Log, effect: x.WriteOwnSince, placed_in: str) -> None:
    """Write the replica's own `whole_since`.

    Args:
        placed_in: the log dir for which the numbers hold. The log may have moved on already.
    """
    numbers = zip((OWN_SINCE, COUNTS_FLUSHED, PLACED_SINCE), effect, strict=True)
    log.facts.update({**dict(numbers), PLACED_IN: _directory_id(store, placed_in)})


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


def read(store: LogStore, name: str, number: int) -> tuple[Log, int, x.Opened] | None:
    """Find a log, the start that the rules will know, and its facts; None if there is no log.

    Raises:
        LogDirError: the log may be in a log dir that does not work.
    """
    try:
        log = store.log(name, number)
        return log, log.log_start_offset, describe(store, log)
    except UnknownPartitionError:
        return None


def reason_of(error: Exception) -> str:
    """Return the reason why a log cannot be read, for operators."""
    is_expected = isinstance(error, LogStoreError)
    return str(error) if is_expected else f"{type(error).__name__}: {error}"


def report_unread(name: str, number: int, error: Exception, outbox: Outbox) -> None:
    """Log that a replica is offline. If a bug is the reason, add its traceback, and an alarm."""
    is_bug, reason = not isinstance(error, LogStoreError), reason_of(error)
    text = "%s-%d is offline, because it cannot be read: %s"
    if is_bug:
        LOG.error(text, name, number, reason, exc_info=error)
        outbox.alarm(name, number, reason)
    else:
        LOG.warning(text, name, number, reason)


def delete(store: LogStore, name: str, number: int) -> None:
    """Delete a log, unless there is none."""
    try:
        store.delete(name, number)
    except UnknownPartitionError:
        LOG.info("%s-%d was already deleted", name, number)


def truncate(log: Log, offset: int, *, keep_lost: bool) -> None:
    """Remove the records from an offset on."""
    _report_lost(log, log.truncate_to(offset, keep_lost=keep_lost))


def begin_at(log: Log, offset: int, *, keep_lost: bool) -> None:
    """Remove all records. The log begins again at an offset."""
    _report_lost(log, log.start_at(offset, keep_lost=keep_lost))


def _report_lost(log: Log, path: str | None) -> None:
    """Log where the removed records are kept, because they may have been acknowledged."""
    if path is not None:
        LOG.error("%s-%d lost records; they are kept in %s", log.topic, log.partition, path)


def placed_in_of(store: LogStore, log: Log) -> str:
    """Return the log dir for which the numbers of a log hold; "" if its metadata names none."""
    directory_id = log.facts.get(PLACED_IN)
    if not isinstance(directory_id, str) or not directory_id:
        return ""
    found = (one.path for one in store.host.log_dirs if one.directory_id == directory_id)
    return next(found, UNKNOWN_DIR)


def _directory_id(store: LogStore, path: str) -> str:
    """Return the id of a log dir, which does not change if the log dir gets another path."""
    found = (one.directory_id for one in store.host.log_dirs if one.path == path)
    return next(found, UNKNOWN_DIR)


def describe(store: LogStore, log: Log) -> x.Opened:
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
        placed_in=placed_in_of(store, log),
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
