"""The last hour is kept in memory of a fixed size, and its rates are right."""

from __future__ import annotations

import pytest

from broker.page import history
from broker.page.history import History, Rates

T = 10.0


def test_a_rate_is_a_difference_divided_by_the_time() -> None:
    """The first sample gives no rate; each later one gives the rates since the one before."""
    kept = History()
    kept.take(100.0, Rates(10, 1, 5, 2), {"a": Rates(10, 1, 5, 2)})
    assert (kept.curves().times, kept.latest) == ([], Rates())
    kept.take(110.0, Rates(110, 11, 5, 4), {"a": Rates(60, 6, 5, 3), "b": Rates(50, 5, 0, 1)})
    assert kept.latest == Rates(10, 1, 0, 0.2)
    assert kept.latest_of("a") == Rates(5, 0.5, 0, 0.1)
    assert kept.latest_of("b") == Rates(5, 0.5, 0, 0.1)
    assert kept.latest_of("c") == Rates()
    kept.take(130.0, Rates(110, 11, 25, 4), {"a": Rates(60, 6, 25, 3), "b": Rates(50, 5, 0, 1)})
    assert kept.curves() == ([110.0, 130.0], [Rates(10, 1, 0, 0.2), Rates(0, 0, 1, 0)])
    assert kept.topic_curves()["b"].rates == [Rates(5, 0.5, 0, 0.1), Rates()]


def test_a_counter_that_begins_anew_gives_no_negative_rate() -> None:
    """A topic was deleted and created again between two samples."""
    kept = History()
    kept.take(0.0, Rates(500), {"a": Rates(500)})
    kept.take(T, Rates(20), {"a": Rates(20)})
    assert (kept.latest.bytes_in, kept.latest_of("a").bytes_in) == (2.0, 2.0)


def test_a_clock_that_goes_back_gives_no_rate() -> None:
    """The next sample is compared with the one after the jump."""
    kept = History()
    kept.take(100.0, Rates(10), {})
    kept.take(50.0, Rates(20), {})
    kept.take(60.0, Rates(40), {})
    assert kept.curves() == ([60.0], [Rates(2.0)])


def test_only_an_hour_is_kept() -> None:
    """The oldest sample goes when there are too many; times and rates stay together."""
    kept = History()
    for step in range(history.SAMPLES_MAX + 20):
        counters = Rates(float(step * step))
        kept.take(T * step, counters, {"a": counters})
    for times, rates in (kept.curves(), kept.topic_curves()["a"]):
        assert len(times) == len(rates) == history.SAMPLES_MAX
        assert times[0] == T * 20
        assert rates[0].bytes_in == pytest.approx((20**2 - 19**2) / T)


def test_a_bounded_number_of_topics_has_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle topic gives its curves to one with traffic; a deleted one gives them back."""
    monkeypatch.setattr(history, "TOPICS_MAX", 2)
    monkeypatch.setattr(history, "SAMPLES_MAX", 3)
    kept = History()
    counters = {"a": 0.0, "b": 0.0, "c": 0.0, "idle": 0.0}

    def sample(step: int, *busy: str) -> set[str]:
        for name in busy:
            counters[name] += 10
        kept.take(T * step, Rates(), {name: Rates(value) for name, value in counters.items()})
        return set(kept.topic_curves())

    assert sample(0) == set()
    assert sample(1, "a", "b", "c") == {"a", "b"}
    assert sample(2, "b", "c") == {"a", "b"}
    assert sample(3, "b", "c") == {"a", "b"}
    assert sample(4, "b") == {"a", "b"}
    assert sample(5, "b", "c") == {"c", "b"}  # `a` had no traffic in the samples that are kept
    assert len(kept.topic_curves()["c"].times) == 1
    del counters["b"]
    assert sample(6, "a") == {"a", "c"}
