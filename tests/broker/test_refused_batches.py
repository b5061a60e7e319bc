"""A later batch of a producer does not overtake one that was refused for a moment."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.machines.refused_batches import COUNT_MAX, KEPT_SECONDS, RefusedBatches, Sent
from broker.wire.error_codes import ErrorCode
from logstore import LogDirOfflineError
from support.kafka_client import KafkaClient, batch_of

SECOND, THIRD = Sent(7, 0, 10), Sent(7, 0, 20)
PLACE = ("t", 0)


def refused(sent: Sent = SECOND) -> RefusedBatches:
    """Remember one batch of partition 0."""
    made = RefusedBatches()
    made.note(PLACE, sent, 6, 0.0)
    return made


def test_later_batches_wait_for_the_refused_one() -> None:
    """As often as they come; when the refused one comes again, it is forgotten."""
    made = refused()
    for _ in range(2):
        assert made.code_for(PLACE, THIRD, 1.0) == 6
    assert made.code_for(PLACE, SECOND, 2.0) is None
    assert made.code_for(PLACE, THIRD, 2.0) is None
    assert not made


@pytest.mark.parametrize(
    "sent", [Sent(8, 0, 20), Sent(7, 1, 0), Sent(7, 1, 20), Sent(7, 0, 5), SECOND], ids=str
)
def test_other_batches_pass(sent: Sent) -> None:
    """Another producer or epoch, an earlier batch, and the refused one itself."""
    assert refused().code_for(PLACE, sent, 1.0) is None


def test_other_partitions_pass() -> None:
    """Each partition has its own sequences."""
    assert refused().code_for(("t", 1), THIRD, 1.0) is None
    assert refused().code_for(("u", 0), THIRD, 1.0) is None


def test_sequences_wrap() -> None:
    """After 2^31 - 1 comes 0."""
    made = refused(Sent(7, 0, 2**31 - 3))
    assert made.code_for(PLACE, Sent(7, 0, 4), 1.0) == 6
    assert made.code_for(PLACE, Sent(7, 0, 2**31 - 9), 1.0) is None


def test_after_a_minute_the_log_decides() -> None:
    """A client that has given up the refused batch is not stopped for ever."""
    assert refused().code_for(PLACE, THIRD, KEPT_SECONDS) is None


def test_memory_is_bounded() -> None:
    """The oldest go; a name that no topic can have is not kept."""
    made = refused()
    for number in range(COUNT_MAX):
        made.note((f"t{number}", 0), SECOND, 6, 0.0)
    made.note(("x" * 250, 0), SECOND, 6, 0.0)
    assert len(made) == COUNT_MAX
    assert made.code_for(PLACE, THIRD, 1.0) is None


def test_a_batch_behind_a_refused_one_is_sent_again(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the same error, not OUT_OF_ORDER_SEQUENCE_NUMBER: that makes clients double records.

    The partition is new, so the log alone would take the later batch first.
    """
    client.create("overtaken")
    log = broker.store["overtaken", 0]
    append = type(log).append_encoded

    def fail(*_: Any, **__: Any) -> None:
        raise LogDirOfflineError(path="/disk", reason="EIO")

    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_encoded", fail)
        assert client.produce("overtaken", batches[0]).error_code == 56
    assert type(log).append_encoded is append
    for batch in batches[1:]:
        assert ErrorCode(client.produce("overtaken", batch).error_code).name == (
            "KAFKA_STORAGE_ERROR"
        )
    assert [client.produce("overtaken", batch).base_offset for batch in batches] == [0, 1, 2]


def test_a_producer_in_a_new_epoch_begins_at_once(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of other producers pass as well."""
    client.create("new-epoch")

    def fail(*_: Any, **__: Any) -> None:
        raise LogDirOfflineError(path="/disk", reason="EIO")

    with monkeypatch.context() as patched:
        patched.setattr(type(broker.store["new-epoch", 0]), "append_encoded", fail)
        assert client.produce("new-epoch", batch_of(b"x", producer=(9, 0, 4))).error_code == 56
    assert client.produce("new-epoch", batch_of(b"x", producer=(10, 0, 9))).error_code == 0
    assert client.produce("new-epoch", batch_of(b"x", producer=(9, 1, 0))).error_code == 0
    assert client.produce("new-epoch", batch_of(b"x")).error_code == 0


def test_a_topic_that_is_not_known_yet(client: KafkaClient) -> None:
    """The second batch of a new topic does not overtake the first."""
    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(2)]
    assert client.produce("soon", batches[0]).error_code == 3
    client.create("soon")
    assert client.produce("soon", batches[1]).error_code == 3
    assert [client.produce("soon", batch).error_code for batch in batches] == [0, 0]
