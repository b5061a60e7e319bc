"""Test that no later batch of a producer overtakes a refused or timed out batch."""

from __future__ import annotations

import time
from typing import Any

import pytest

from broker import Broker
from broker.machines import refused_batches
from broker.machines.refused_batches import (
    COUNT_MAX,
    KEPT_SECONDS,
    LOOK_SECONDS,
    TIMED_OUT_KEPT_SECONDS,
    RefusedBatches,
    Sent,
)
from broker.machines.running_time import RunningTime
from broker.wire.error_codes import ErrorCode
from logstore import LogDirOfflineError
from support.kafka_client import KafkaClient, batch_of

SECOND, THIRD = Sent(7, 0, 10), Sent(7, 0, 20)
PLACE = ("t", 0)


def shift_clock(monkeypatch: pytest.MonkeyPatch, broker: Broker, ahead: list[float]) -> None:
    """Let the clock of a broker be ahead by some seconds, until the test ends."""
    services = broker._services
    monkeypatch.setattr(services, "clock", lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr(services, "running_time", RunningTime(time.monotonic()))


def refused(sent: Sent = SECOND) -> RefusedBatches:
    """Remember one batch of partition 0."""
    made = RefusedBatches()
    made.note(PLACE, sent, 6, 0.0)
    return made


def test_later_batches_wait_for_the_refused_one() -> None:
    """Later batches are refused until the refused batch comes again, which is then forgotten."""
    made = refused()
    for _ in range(2):
        assert made.code_for(PLACE, THIRD, 1.0) == 6
    assert made.code_for(PLACE, SECOND, 2.0, 10) is None
    assert made.code_for(PLACE, THIRD, 2.0) is None
    assert not made


def test_regression_no_batch_overtakes_the_second_of_two_refused_batches() -> None:
    """The first one comes again, or the log has it; a new batch must still wait for the second."""
    for is_in_log in (True, False):
        made, fourth = refused(), Sent(7, 0, 30)
        made.note(PLACE, THIRD, 6, 1.0)
        if is_in_log:
            made.advance(PLACE, THIRD)
        else:
            assert made.code_for(PLACE, SECOND, 2.0, 10) is None
        assert made.code_for(PLACE, fourth, 2.0, 10) == 6
        assert made.code_for(PLACE, SECOND, 2.0, 10) is None, "it is in the log by now"
        assert made.code_for(PLACE, Sent(7, 0, 40), 2.0, 10) == 6
        assert made.code_for(PLACE, THIRD, 2.0, 10) is None
        assert made.code_for(PLACE, Sent(7, 0, 40), 2.0, 10) == 6
        assert made.code_for(PLACE, fourth, 2.0, 10) is None
        assert made.code_for(PLACE, Sent(7, 0, 40), 2.0, 10) is None
        assert not made


def test_regression_a_batch_that_is_refused_again_keeps_the_batches_behind_it() -> None:
    """It passes, but the log dir does not work yet."""
    made = refused()
    assert made.code_for(PLACE, THIRD, 1.0) == 6
    assert made.code_for(PLACE, SECOND, 2.0, 10) is None
    made.note(PLACE, SECOND, 7, 2.0)
    assert made.code_for(PLACE, THIRD, 3.0) == 7
    assert made.code_for(PLACE, SECOND, 3.0, 10) is None
    assert made.code_for(PLACE, Sent(7, 0, 21), 3.0) == 7, "the third is still missing"


def test_regression_a_batch_that_is_split_passes_in_parts() -> None:
    """Java's producer splits a batch that is too large."""
    made = refused()
    assert made.code_for(PLACE, THIRD, 1.0) == 6
    assert made.code_for(PLACE, SECOND, 2.0, 4) is None
    assert made.code_for(PLACE, Sent(7, 0, 14), 2.0, 6) is None
    assert made.code_for(PLACE, THIRD, 2.0) is None and not made


@pytest.mark.parametrize(
    "sent", [Sent(8, 0, 20), Sent(7, 1, 0), Sent(7, 1, 20), Sent(7, 0, 5), SECOND], ids=str
)
def test_other_batches_pass(sent: Sent) -> None:
    """Another producer or epoch, an earlier batch, and the refused batch itself pass."""
    assert refused().code_for(PLACE, sent, 1.0) is None


def test_a_batch_before_the_refused_one_changes_nothing() -> None:
    """An earlier batch is a copy of a batch that is already in the log."""
    made = refused()
    assert made.code_for(PLACE, Sent(7, 0, 5), 1.0) is None
    assert made.code_for(PLACE, THIRD, 1.0) == 6


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
    """If a client has given up the refused batch, it can continue after a minute."""
    assert refused().code_for(PLACE, THIRD, KEPT_SECONDS) is None


def test_memory_is_bounded() -> None:
    """One batch too many closes its connection; a batch of no topic is not kept."""
    made = refused()
    for number in range(1, COUNT_MAX):
        assert made.note((f"t{number}", 0), SECOND, 6, 1.0)
    assert made.note(("x" * 250, 0), SECOND, 6, 1.0)
    assert not made.note(("one more", 0), SECOND, 6, KEPT_SECONDS - 1)
    assert made.note(("t1", 0), SECOND, 6, KEPT_SECONDS - 1), "it is remembered already"
    assert len(made) == COUNT_MAX
    assert made.code_for(PLACE, THIRD, 1.0) == 6
    assert made.note(("one more", 0), SECOND, 6, KEPT_SECONDS), "the first one has expired"
    assert len(made) == COUNT_MAX
    assert made.code_for(("one more", 0), THIRD, KEPT_SECONDS) == 6


def test_the_earlier_of_two_batches_comes_first() -> None:
    """Both were refused, in one request or while the first one was in the log."""
    made = refused()
    made.note(PLACE, THIRD, 7, 1.0)
    assert made.code_for(PLACE, THIRD, 2.0) == 6
    made.note(PLACE, Sent(7, 0, 5), 7, 1.0)
    assert made.code_for(PLACE, SECOND, 2.0) == 7
    made.note(PLACE, Sent(7, 1, 0), 8, 1.0)
    assert made.code_for(PLACE, Sent(7, 1, 9), 2.0) == 8
    made.note(PLACE, Sent(7, 1, 9), 9, KEPT_SECONDS + 1)
    assert made.code_for(PLACE, Sent(7, 1, 9), KEPT_SECONDS + 2) is None, "the first has expired"


def test_the_log_is_asked_now_and_then() -> None:
    """A look takes time, so a client cannot ask for one with each request."""
    made = refused()
    assert made.to_look_for(PLACE, 8, 1.0) is None and made.to_look_for(("u", 0), 7, 1.0) is None
    assert made.to_look_for(PLACE, 7, 1.0) == SECOND
    assert made.to_look_for(PLACE, 7, 1.0 + LOOK_SECONDS / 2) is None
    assert made.to_look_for(PLACE, 7, 1.1 + LOOK_SECONDS) == SECOND
    made.advance(PLACE, THIRD)
    made.advance(PLACE, THIRD)
    assert made.code_for(PLACE, THIRD, 1.0) is None and not made


def test_the_sequence_after_the_last_one_is_zero() -> None:
    """The log has the last sequence number, and expects 0, but 1 comes."""
    made = refused(Sent(7, 0, 2**31 - 1))
    assert made.code_for(PLACE, Sent(7, 0, 0), 1.0) == 6
    made.advance(PLACE, Sent(7, 0, 2**31 - 1).after(1))
    assert made.code_for(PLACE, Sent(7, 0, 1), 1.0) == 6
    assert made.code_for(PLACE, Sent(7, 0, 0), 1.0) is None


def test_regression_a_refused_batch_that_another_leader_took(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer goes on at once, when this broker leads again; it waited for up to a minute."""
    client.create("led-again")
    log = broker.store["led-again", 0]

    def fail(*_: Any, **__: Any) -> None:
        raise LogDirOfflineError(path="/disk", reason="EIO")

    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(4)]
    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_encoded", fail)
        assert client.produce("led-again", batches[1]).error_code == 56
    with KafkaClient(broker.bootstrap_servers) as other:  # as by the other leader
        assert not other.produce("led-again", batches[0]).error_code
        assert client.produce("led-again", batches[2]).error_code == 56, "it is not there yet"
        assert not other.produce("led-again", batches[1]).error_code
    deadline = time.monotonic() + 20.0
    while client.produce("led-again", batches[2]).error_code:
        assert time.monotonic() < deadline
    assert client.produce("led-again", batches[3]).base_offset == 3


def test_regression_the_log_has_only_the_first_of_two_refused_batches(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk hung, and the first batch was written after its refusal.

    The batch behind the second one got OUT_OF_ORDER_SEQUENCE_NUMBER. After that, librdkafka sends
    the first batch again in a new epoch, which doubles its records.
    """
    client.create("hung")
    log = broker.store["hung", 0]
    append = type(log).append_encoded

    def write_and_fail(*arguments: Any, **named: Any) -> None:
        append(*arguments, **named)
        raise LogDirOfflineError(path="/disk", reason="EIO")

    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(4)]
    assert client.produce("hung", batches[0]).error_code == 0
    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_encoded", write_and_fail)
        assert client.produce("hung", batches[1]).error_code == 56
    with monkeypatch.context() as patched:
        patched.setattr(RefusedBatches, "to_look_for", lambda *_: None)  # no look is due
        assert client.produce("hung", batches[2]).error_code == 56
    for _ in range(2):
        assert client.produce("hung", batches[3]).error_code == 56
    assert [client.produce("hung", batch).base_offset for batch in batches[1:]] == [1, 2, 3]
    assert [record.value for record in log] == [b"0", b"1", b"2", b"3"]


def test_regression_a_batch_behind_a_damaged_one_is_sent_again(client: KafkaClient) -> None:
    """Clients send a damaged batch again. Before, the log took the later batch as the first one."""
    client.create("damaged")
    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(2)]
    damaged = batches[0][:-1] + bytes([batches[0][-1] ^ 1])
    assert client.produce("damaged", damaged).error_code == ErrorCode.CORRUPT_MESSAGE
    assert client.produce("damaged", batches[1]).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [client.produce("damaged", batch).base_offset for batch in batches] == [0, 1]


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
    """Batches of other producers pass, too."""
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
    """The second batch of a new topic does not overtake the first batch."""
    batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(2)]
    assert client.produce("soon", batches[0]).error_code == 3
    client.create("soon")
    assert client.produce("soon", batches[1]).error_code == 3
    assert [client.produce("soon", batch).error_code for batch in batches] == [0, 0]


class Slow:
    """A topic whose other replica has no records, so that each wait for it times out."""

    def __init__(self, client: KafkaClient, broker: Broker, topic: str) -> None:
        client.create(topic)
        self._client, self._topic, self.log = client, topic, broker.store[topic, 0]
        self.log.advance_high_watermark(0)
        self.batches = [batch_of(b"%d" % n, producer=(9, 0, n)) for n in range(3)]

    def send(self, number: int, acks: int = -1) -> str:
        """Send a batch with a short timeout; return the name of the error."""
        row = self._client.produce(self._topic, self.batches[number], acks=acks, timeout_ms=0)
        return ErrorCode(row.error_code).name


def test_regression_a_batch_behind_one_that_timed_out_is_sent_again(
    client: KafkaClient, broker: Broker
) -> None:
    """The leader cut the first batch when it led no more, and then it took the second one.

    The error of the second batch says that nothing of it was written. The first one passes.
    """
    slow = Slow(client, broker, "cut")
    assert slow.send(0) == "REQUEST_TIMED_OUT"
    slow.log.truncate_to(0)
    assert [slow.send(1), slow.send(2), slow.send(1)] == ["NOT_ENOUGH_REPLICAS"] * 3
    assert slow.log.log_end_offset == 0
    for number in range(3):
        assert slow.send(number) == "REQUEST_TIMED_OUT", "each is appended, and waits"
        assert slow.log.log_end_offset == number + 1
        slow.log.advance_high_watermark(number + 1)
        assert slow.send(number) == "NONE", "it is a duplicate, and does not have to wait"
    assert [record.value for record in slow.log] == [b"0", b"1", b"2"]


def test_regression_no_batch_overtakes_a_second_refused_batch(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch timed out, and was replicated later. The second batch was refused.

    The third batch was on its way. It got OUT_OF_ORDER_SEQUENCE_NUMBER, so the client began a new
    epoch, and sent the first batch again: the record was there twice.
    """
    slow = Slow(client, broker, "behind")
    now = [0.0]
    shift_clock(monkeypatch, broker, now)
    assert slow.send(0) == "REQUEST_TIMED_OUT"
    assert slow.send(1) == "NOT_ENOUGH_REPLICAS"
    slow.log.advance_high_watermark(1)
    now[0] = LOOK_SECONDS
    assert slow.send(2) == "NOT_ENOUGH_REPLICAS"
    for number in range(3):
        assert slow.send(number, acks=1) == "NONE"
    assert [record.value for record in slow.log] == [b"0", b"1", b"2"]


def test_a_producer_that_gives_up_a_timed_out_batch_is_not_stopped_for_long(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timed out batch is in the log, so the next batch is in order."""
    slow = Slow(client, broker, "given-up")
    now: list[float] = [0.0]
    shift_clock(monkeypatch, broker, now)
    assert slow.send(0) == "REQUEST_TIMED_OUT"
    assert slow.send(1) == "NOT_ENOUGH_REPLICAS"
    for now[0] in range(1, int(TIMED_OUT_KEPT_SECONDS) + 1):  # the broker runs all the time
        broker._services.running_time.at(time.monotonic() + now[0])
    assert slow.send(1, acks=1) == "NONE"
    assert slow.log.log_end_offset == 2


def test_regression_a_broker_was_frozen_after_a_batch_timed_out(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile, the batch was cut. The next batch was on its way, and comes when the broker wakes.

    It got OUT_OF_ORDER_SEQUENCE_NUMBER. After this error, some clients double records.
    """
    slow = Slow(client, broker, "frozen")
    frozen = [0.0]
    shift_clock(monkeypatch, broker, frozen)
    assert slow.send(0) == "REQUEST_TIMED_OUT"
    slow.log.advance_high_watermark(1)
    assert slow.send(1) == "REQUEST_TIMED_OUT"
    slow.log.truncate_to(1)
    for frozen[0] in (TIMED_OUT_KEPT_SECONDS + 5, 2 * KEPT_SECONDS):
        assert slow.send(2, acks=1) == "NOT_ENOUGH_REPLICAS"
    for number in (1, 2):
        assert slow.send(number, acks=1) == "NONE"
    assert [record.value for record in slow.log] == [b"0", b"1", b"2"]


def test_regression_a_connection_is_closed_before_a_refused_batch_is_forgotten(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a forgotten partition accepted the second batch after it had refused the first."""
    monkeypatch.setattr(refused_batches, "COUNT_MAX", 2)
    batch = batch_of(b"x", producer=(9, 0, 0))
    for topic in ("none-1", "none-2", "none-1"):
        assert client.produce(topic, batch).error_code == 3
    with pytest.raises(EOFError):
        client.produce("none-3", batch)
