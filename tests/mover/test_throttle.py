"""Test the rates of moves with a clock that the test sets."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mover.rates.throttle import (
    BURST_SECONDS,
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    MoveThrottle,
    Throttle,
)

MB = 1_000_000
SECONDS = 10.0


class HandClock:
    """A clock that stands still until a thread waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now


class HandCondition(threading.Condition):
    """A condition; a wait on it advances the clock."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.waits.append(timeout)
        now = self._clock.now
        self._clock.on_wait()
        if self._clock.now == now:
            self._clock.now += timeout
        return False


@pytest.fixture
def clock() -> HandClock:
    """Return the clock of the throttle."""
    return HandClock()


def throttle_on(clock: HandClock, rate: int | str | None = None) -> Throttle:
    return Throttle(rate, clock=clock, changed=HandCondition(clock))


def go_on() -> bool:
    return False


def bytes_in(throttle: MoveThrottle, clock: HandClock, seconds: float) -> int:
    """Take chunks until the time is over; return the bytes that were taken before its end."""
    end, gone = clock.now + seconds, 0
    while True:
        size = throttle.chunk_bytes
        assert throttle.take(size, go_on)
        if clock.now >= end:
            return gone
        gone += size


def bytes_of_threads(rate: int, count: int, copy_seconds: float) -> int:
    """Virtual threads ask, wait, copy and ask again, in order of time; no real thread runs."""
    clock = HandClock()
    throttle = throttle_on(clock, rate)
    store, start, gone = throttle._store, clock.now, 0
    size = throttle.for_move().chunk_bytes
    due = [(start, thread, False, 0.0) for thread in range(count)]
    while True:
        now, thread, has_asked, ticket = heapq.heappop(due)
        if now - start >= SECONDS:
            return gone
        if not has_asked:
            ticket = store.ask(size, now)
        seconds = store.seconds_until(ticket, now)
        if seconds:
            heapq.heappush(due, (now + seconds, thread, True, ticket))
        else:
            gone += size
            heapq.heappush(due, (now + copy_seconds, thread, False, 0.0))


@pytest.mark.parametrize("rate", [50 * MB, 200 * MB])
def test_one_move_keeps_the_rate(clock: HandClock, rate: int) -> None:
    """In ten seconds, the bytes are those of the rate, within one chunk."""
    move = throttle_on(clock, rate).for_move()
    assert abs(bytes_in(move, clock, SECONDS) - rate * SECONDS) <= move.chunk_bytes


@pytest.mark.parametrize("rate", [50 * MB, 200 * MB])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("copy_seconds", [0.0, 0.004])
def test_threads_share_the_rate(rate: int, threads: int, copy_seconds: float) -> None:
    """Four threads together keep the rate within 1 %, even if a copy takes its time."""
    gone = bytes_of_threads(rate, threads, copy_seconds)
    assert gone == pytest.approx(rate * SECONDS, rel=0.01)


def test_a_late_wake_up_is_made_good(clock: HandClock) -> None:
    """Waits that last 5 ms too long lose no bytes over ten seconds."""
    move = throttle_on(clock, 50 * MB).for_move()

    def oversleep() -> None:
        clock.now += clock.waits[-1] + 0.005

    clock.on_wait = oversleep
    assert bytes_in(move, clock, SECONDS) == pytest.approx(50 * MB * SECONDS, rel=0.005)


def test_idling_saves_up_a_tenth_of_a_second(clock: HandClock) -> None:
    """After an idle minute, only the saved bytes are copied at once."""
    move = throttle_on(clock, 1 * MB).for_move()
    assert move.take(1000, go_on)
    clock.now += 60
    start, gone = clock.now, 0
    while clock.now == start:
        assert move.take(1000, go_on)
        gone += 1000
    assert gone - 2000 <= 1 * MB * BURST_SECONDS <= gone


def test_without_a_rate_nothing_waits(clock: HandClock) -> None:
    """Without a ceiling, there is no wait, and the chunk has the largest size."""
    move = throttle_on(clock).for_move(["/disk1", "/disk2"])
    for _ in range(1000):
        assert move.take(1 << 30, go_on)
    assert not clock.waits
    assert move.rate is None
    assert move.chunk_bytes == CHUNK_BYTES_MAX


@pytest.mark.parametrize(
    ("store", "disk", "own", "narrowest"),
    [(9, None, None, 9), (9, 7, None, 7), (9, 7, 5, 5), (None, None, 5, 5), (3, 7, 5, 3)],
)
def test_the_narrowest_ceiling_counts(
    clock: HandClock, store: int | None, disk: int | None, own: int | None, narrowest: int
) -> None:
    """The store, the disk and the move have a rate each; the lowest one counts."""
    throttle = throttle_on(clock, None if store is None else store * MB)
    if disk is not None:
        throttle.set_rate(f"{disk}MB/s", log_dir="/disk2")
    move = throttle.for_move(["/disk1", "/disk2"], None if own is None else own * MB)
    assert move.rate == narrowest * MB
    assert bytes_in(move, clock, 1.0) == pytest.approx(narrowest * MB, rel=0.03)


def test_a_held_up_move_holds_up_nobody(clock: HandClock) -> None:
    """If a disk holds a move up, other moves can use the whole rate of the store."""
    throttle = throttle_on(clock, 10 * MB)
    throttle.set_rate(1000, log_dir="/slow")
    slow, fast = throttle.for_move(["/slow"]), throttle.for_move(["/fast"])
    assert slow.take(100_000, go_on)
    stops = iter([False, True])
    assert not slow.take(100_000, lambda: next(stops))  # waits 100 s for its disk
    clock.now -= clock.waits.pop()
    assert bytes_in(fast, clock, 1.0) == pytest.approx(10 * MB, rel=0.03)


def test_a_new_rate_moves_who_waits(clock: HandClock) -> None:
    """If the rate becomes a hundred times higher, a wait of 100 s becomes a wait of 1 s."""
    throttle = throttle_on(clock, 1000)
    move = throttle.for_move()
    assert move.take(100_000, go_on)
    start = clock.now

    def raise_rate() -> None:
        clock.on_wait = lambda: None
        clock.now += 0.5
        throttle.set_rate(100_000)

    clock.on_wait = raise_rate
    assert move.take(1, go_on)
    assert clock.waits[0] == pytest.approx(100)
    assert clock.now - start == pytest.approx(0.5 + 0.995)


@pytest.mark.parametrize("lift", ["store", "disk", "move"])
def test_lifting_a_ceiling_lets_go_at_once(clock: HandClock, lift: str) -> None:
    """If the rate becomes None, waiting moves continue, wherever the rate was set."""
    throttle = throttle_on(clock, 10 if lift == "store" else None)
    if lift == "disk":
        throttle.set_rate(10, log_dir="/disk1")
    move = throttle.for_move(["/disk1"], 10 if lift == "move" else None)
    assert move.take(1000, go_on)

    def let_go() -> None:
        clock.now += 0.25
        if lift == "move":
            move.set_rate(None)
        else:
            throttle.set_rate(None, log_dir="/disk1" if lift == "disk" else None)

    clock.on_wait = let_go
    assert move.take(1000, go_on)
    assert len(clock.waits) == 1


def test_a_new_rate_starts_without_debt_or_savings(clock: HandClock) -> None:
    """A ceiling that is set after a time without one counts no earlier bytes."""
    throttle = throttle_on(clock)
    move = throttle.for_move()
    assert move.take(1 << 40, go_on)
    clock.now += 60
    throttle.set_rate(50 * MB)
    gone = bytes_in(move, clock, SECONDS)
    assert gone == pytest.approx(50 * MB * SECONDS, rel=0.01)


def test_a_stop_is_obeyed_before_and_within_the_wait(clock: HandClock) -> None:
    """Bytes that were requested, but not taken, are given back."""
    throttle = throttle_on(clock, 1000)
    move = throttle.for_move()
    assert not move.take(5000, lambda: True)
    assert move.take(1000, go_on)
    stopped: list[bool] = []
    clock.on_wait = lambda: stopped.append(True)
    assert not move.take(1_000_000, lambda: bool(stopped))
    clock.on_wait = lambda: None
    start = clock.now
    assert move.take(1000, go_on)
    assert clock.now - start <= 1.0


def test_an_interrupt_gives_back_too(clock: HandClock) -> None:
    """If Ctrl-C interrupts the wait, no ticket is left."""
    throttle = throttle_on(clock, 1000)
    move = throttle.for_move()
    assert move.take(1000, go_on)

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        move.take(1_000_000, go_on)
    clock.on_wait = lambda: None
    start = clock.now
    assert move.take(1, go_on)
    assert clock.now - start == pytest.approx(1.0)


def test_wake_reaches_a_thread_that_waits() -> None:
    """A real thread in an endless wait returns after it is stopped and woken."""
    throttle = Throttle(1)
    move = throttle.for_move()
    assert move.take(1 << 40, go_on)
    asked, stop, answers = threading.Event(), threading.Event(), []

    def is_stopped() -> bool:
        asked.set()
        return stop.is_set()

    thread = threading.Thread(target=lambda: answers.append(move.take(1, is_stopped)), daemon=True)
    thread.start()
    assert asked.wait(60)
    stop.set()
    throttle.wake()
    thread.join(60)
    assert answers == [False]


@pytest.mark.parametrize("rate", [0, -1, "0MB/s"])
def test_a_rate_of_nothing_is_refused(rate: int | str) -> None:
    """To let nothing through, a move has to be paused."""
    with pytest.raises(ValueError, match="pause"):
        Throttle(rate)
    with pytest.raises(ValueError, match="pause"):
        Throttle().set_rate(rate)
    with pytest.raises(ValueError, match="pause"):
        Throttle().for_move().set_rate(rate)


@pytest.mark.parametrize("rate", [1, 10_000, 1 * MB, 50 * MB, 10_000 * MB])
def test_chunks_follow_the_rate(rate: int) -> None:
    """A chunk has the bytes of a fiftieth of a second, between 4 KiB and 4 MiB."""
    size = Throttle(rate).for_move().chunk_bytes
    assert size == min(max(rate // 50, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)


def test_rates_can_be_asked_for() -> None:
    """The ceilings of the store and its disks are returned; None means no ceiling."""
    throttle = Throttle("50MB/s")
    assert throttle.rate_of() == 50 * MB
    assert throttle.rate_of("/disk1") is None
    throttle.set_rate(7, log_dir="/disk1")
    assert throttle.rate_of("/disk1") == 7
    assert "50000000" in repr(throttle)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "idle", "rate"]), st.integers(1, 2 * MB), st.integers(0, 2000)
        ),
        max_size=60,
    )
)
def test_no_span_exceeds_its_rate(steps: list[tuple[str, int, int]]) -> None:
    """In a span at one rate, at most rate x span bytes, one chunk and the saved bytes pass."""
    clock = HandClock()
    throttle = throttle_on(clock, 1 * MB)
    move, rate, start, gone, largest = throttle.for_move(), 1 * MB, clock.now, 0, 0
    for what, size, milliseconds in steps:
        if what == "take":
            assert move.take(size, go_on)
            gone, largest = gone + size, max(largest, size)
        elif what == "idle":
            clock.now += milliseconds / 1000
        else:
            rate, start, gone, largest = size, clock.now, 0, 0
            throttle.set_rate(rate)
        allowed = rate * (clock.now - start + BURST_SECONDS) + largest
        assert gone <= allowed + 1
