"""Logs with damage do not change hands, because the new owner would lose records of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import foresee, hand_back
from broker.hands.stages import ChangeOfHandsError
from broker.hands.survey import survey
from broker.hands.take_over import take_over
from logstore import LogStore
from logstore.format.prefix import Span, walk
from logstore.store.kafka.hands import WORK_DIRS
from support.hands import bytes_below, names_below, small
from support.kafka_golden import log_dirs

LONGEST = "__transaction_state-0"


def segment_of(dirs: list[Path], name: str, number: int = -1) -> Path:
    """Give a segment of a partition."""
    return sorted(next(path for one in dirs for path in one.glob(name)).glob("*.log"))[number]


def hurt(path: Path, change: Callable[[bytearray, list[Span]], object]) -> None:
    """Change the bytes of a segment."""
    data = bytearray(path.read_bytes())
    change(data, list(walk(bytes(data))))
    path.write_bytes(data)


def flip_last(count: int) -> Callable[[bytearray, list[Span]], None]:
    """Flip a bit in each of the last batches."""

    def change(data: bytearray, spans: list[Span]) -> None:
        for span in spans[-count:]:
            data[span.position + span.size_bytes - 2] ^= 1

    return change


def flip_magic(data: bytearray, spans: list[Span]) -> None:
    """Flip a bit of the first magic byte of a segment."""
    data[16] ^= 1


def flip_middle(data: bytearray, spans: list[Span]) -> None:
    """Flip a bit in a batch in the middle."""
    span = spans[len(spans) // 2]
    data[span.position + span.size_bytes - 2] ^= 1


def without_two(dirs: list[Path]) -> None:
    """Remove the last two segments."""
    for _ in range(2):
        segment_of(dirs, "segments-0").unlink()


DAMAGE: list[tuple[str, Callable[[list[Path]], object], str]] = [
    ("stopped", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_last(1)), LONGEST),
    ("stopped", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_last(3)), LONGEST),
    ("stopped", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_magic), LONGEST),
    ("stopped", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_middle), LONGEST),
    ("stopped", lambda dirs: hurt(segment_of(dirs, "segments-0", 2), flip_last(1)), "segments-0"),
    ("stopped", without_two, "segments-0"),
    ("killed", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_magic), LONGEST),
    ("killed", lambda dirs: hurt(segment_of(dirs, LONGEST), flip_middle), LONGEST),
    ("killed", without_two, "segments-0"),
]


@pytest.mark.parametrize(("name", "change", "key"), DAMAGE)
def test_regression_a_damaged_log_is_not_taken_over(
    tmp_path: Path, name: str, change: Callable[[list[Path]], object], key: str
) -> None:
    """Its damaged end was left out, and the original was removed."""
    dirs = log_dirs(name, tmp_path)
    change(dirs)
    before = bytes_below(dirs)
    with pytest.raises(ChangeOfHandsError, match=f"{key}: .*/{key}.*restore these files"):
        take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    assert bytes_below(dirs) == before
    assert not {name for name in names_below(dirs) if name.endswith(tuple(WORK_DIRS))}


@pytest.mark.parametrize("change", [flip_last(1), flip_last(2), flip_magic, flip_middle])
def test_regression_damage_is_noticed_without_checkpoints(
    tmp_path: Path, change: Callable[[bytearray, list[Span]], None]
) -> None:
    """After a clean stop, Kafka leaves only whole batches."""
    dirs = small(tmp_path)
    hurt(segment_of(dirs, "transactions-0"), change)
    before = bytes_below(dirs)
    with pytest.raises(ChangeOfHandsError, match=r"transactions-0: .*/transactions-0/\d+\.log"):
        take_over([str(one) for one in dirs], KAFKA_LOG_CONFIG)
    assert bytes_below(dirs) == before


def test_a_torn_tail_is_normal_if_kafka_was_not_stopped_cleanly(tmp_path: Path) -> None:
    """Kafka would cut it too; the take-over only says so."""
    dirs = small(tmp_path)
    for one in dirs:
        (one / ".kafka_cleanshutdown").unlink()
    path = segment_of(dirs, "transactions-0")
    with LogStore.open_kafka(dirs) as source:
        end = source.log("transactions", 0).log_end_offset
    data = path.read_bytes()
    path.write_bytes(data + data[:50])
    paths = [str(one) for one in dirs]
    expected = re.compile(rf"transactions-0: .* 50 bytes after offset {end}")
    assert any(expected.fullmatch(one) for one in survey(paths, KAFKA_LOG_CONFIG, None).warnings)
    done = take_over(paths, KAFKA_LOG_CONFIG)
    assert any(expected.fullmatch(one) for one in done.warnings)
    with LogStore.open(dirs) as store:
        log = store.log("transactions", 0)
        assert log.log_end_offset == end and not log.recovery.problems


def test_the_check_names_damaged_ends(tmp_path: Path) -> None:
    """It compares the ends of the logs with Kafka's checkpoints."""
    dirs = log_dirs("stopped", tmp_path)
    without_two(dirs)
    problems = survey([str(one) for one in dirs], KAFKA_LOG_CONFIG, None).problems
    assert len(problems) == 2 and "recovery-point-offset-checkpoint" in problems[0]


# --- hand-back ------------------------------------------------------------------------------------


def zero_first(data: bytearray, spans: list[Span]) -> None:
    """Overwrite the first batch of a segment with zeros."""
    data[: spans[0].size_bytes] = bytes(spans[0].size_bytes)


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("name", ["segments-0", "transactions-0"])
def test_regression_a_damaged_log_is_not_handed_back(
    tmp_path: Path, name: str, number: int
) -> None:
    """The undamaged batches of the segment were removed."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    take_over(paths, KAFKA_LOG_CONFIG)
    path = segment_of(dirs, name, number)
    hurt(path, zero_first)
    data = path.read_bytes()
    for change in (foresee, hand_back, foresee, hand_back):
        with pytest.raises(ChangeOfHandsError, match=f"{name}: .*/{path.name}.*logstore repair"):
            change(paths)
        assert path.read_bytes() == data
    with LogStore.open(dirs) as store:
        store.repair(name.removesuffix("-0"), 0)
    foresee(paths)
    hand_back(paths)
    with LogStore.open_kafka(dirs) as source:
        assert source.verify().is_sound


def test_an_undamaged_store_can_be_handed_back_after_a_kill(tmp_path: Path) -> None:
    """The check reads the segments that the killed store has not described."""
    dirs = small(tmp_path)
    paths = [str(one) for one in dirs]
    take_over(paths, KAFKA_LOG_CONFIG)
    with LogStore.open(dirs) as store:
        store.log("segments", 0).append(b"v", durable=True)
        kept = {path: path.read_bytes() for one in dirs for path in one.glob("*-0/*")}
    for path in {path for one in dirs for path in one.glob("*-0/*")} - kept.keys():
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)
    for one in dirs:
        (one / ".clean-shutdown").unlink()
    assert foresee(paths).partition_count == hand_back(paths).partition_count == 4
