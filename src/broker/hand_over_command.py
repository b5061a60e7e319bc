"""Implement the commands `logstore take-over` and `logstore hand-back`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from broker.cli import Wish, read_wish
from broker.hands import hand_back as returning
from broker.hands import take_over as taking
from broker.hands.file_swap import changes_of
from broker.hands.stages import Stage, stage_of_take_over
from broker.hands.survey import survey
from broker.properties import parse_properties
from logstore import LogConfig, TopicPartition
from logstore.cli.interrupts import held
from logstore.cli.options import format_option, log_dirs_option, note, wrong_usage
from logstore.cli.output import print_facts, progress_bar
from logstore.units import format_count

METADATA_KEY = "metadata.log.dir"


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of both commands."""
    config = click.option(
        "--config",
        "config_file",
        type=click.File("rb"),
        metavar="FILE",
        help="The server.properties of the broker; it names the log dirs.",
    )
    check = click.option(
        "--check", "is_check", is_flag=True, help="Only show what would be done; change nothing."
    )
    return log_dirs_option(config(check(format_option()(function))))


@click.command("take-over", short_help="Take over the log dirs of a stopped Kafka broker.")
@_options
@click.option(
    "--metadata-log-dir",
    "metadata_dir",
    metavar="DIR",
    help="The directory with Kafka's metadata log (KRaft), if it is not one of the log dirs.",
)
def take_over(
    log_dirs: tuple[str, ...],
    config_file: BinaryIO | None,
    is_check: bool,
    output_format: str,
    metadata_dir: str | None,
) -> None:
    """Take over the log dirs of a stopped Kafka broker, in place.

    Name all log dirs of the broker. After the take-over, start `logstore broker` on the same log
    dirs. If this command is interrupted, run it again. The settings of topics come from the
    metadata log of the cluster.

    \b
    Examples:
      logstore take-over --config server.properties --check
      logstore take-over --log-dirs /disk1/kafka,/disk2/kafka --metadata-log-dir /disk0/meta
    """
    wish, entries = _wish(log_dirs, config_file)
    metadata_dir = metadata_dir or entries.get(METADATA_KEY) or None
    defaults = wish.found.config.log_config
    if is_check:
        code = _check(wish.log_dirs, defaults, metadata_dir, output_format)
        click.get_current_context().exit(code)
    with progress_bar("taking over", None, is_bytes=False) as show, _interruptible():
        done = taking.take_over(wish.log_dirs, defaults, metadata_dir, show)
    for warning in done.warnings:
        note(f"warning: {warning}")
    count = format_count(done.partition_count, "partition")
    was = "are" if done.is_new else "were already"
    print_facts(done._asdict(), output_format, f"{count} {was} taken over")


def _check(
    paths: list[str], defaults: LogConfig, metadata_dir: str | None, output_format: str
) -> int:
    """Print what a take-over would do; return the exit code."""
    paths = taking.checked(paths)
    taking.check_not_running(paths)
    stage = stage_of_take_over(changes_of(paths))
    if stage is not Stage.BUILD:
        print_facts({"stage": stage.name.lower()}, output_format, STAGES[stage])
        return 0
    found = survey(paths, defaults, metadata_dir)
    for warning in found.warnings:
        note(f"warning: {warning}")
    for problem in found.problems:
        note(f"problem: {problem}")
    count = format_count(len(found.logs), "partition")
    facts = {
        "cluster_id": found.cluster_id, "node_id": found.node_id,
        "partition_count": len(found.logs), "problems": found.problems, "warnings": found.warnings,
    }  # fmt: skip
    sentence = f"cluster {found.cluster_id}, broker {found.node_id}: {count} to take over"
    print_facts(facts, output_format, sentence)
    return 1 if found.problems else 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt the work at once.

    An interrupt of the work is safe, because every step can be repeated.
    """
    with held() as interrupts, interrupts.allowed():
        yield


STAGES = {
    Stage.CONTINUE: "a take-over was interrupted; it would be continued",
    Stage.DONE: "the log dirs were already taken over",
}


@click.command("hand-back", short_help="Hand log dirs back to their Kafka broker.")
@_options
def hand_back(
    log_dirs: tuple[str, ...], config_file: BinaryIO | None, is_check: bool, output_format: str
) -> None:
    """Hand log dirs that were taken over back to the Kafka broker, in place.

    Stop the broker of this library first. Then start Kafka with its own configuration. If this
    command is interrupted, run it again.

    \b
    Example:
      logstore hand-back --config server.properties
    """
    wish, _ = _wish(log_dirs, config_file)
    if is_check:
        done = returning.foresee(wish.log_dirs)
    else:
        with progress_bar("handing back", None, is_bytes=False) as show, _interruptible():
            done = returning.hand_back(wish.log_dirs, show)
    _tell(done, is_check, output_format)


def _tell(done: returning.HandedBack, is_check: bool, output_format: str) -> None:
    if done.created:
        note(
            f"Kafka does not know {_names(done.created)}: it finds these partitions as directories "
            "with the suffix -stray, and does not serve them"
        )
    if done.deleted:
        note(f"Kafka still knows {_names(done.deleted)}, and creates them again, empty")
    if done.left:
        note(
            f"these belong neither to Kafka nor to the store, and stay: {', '.join(done.left)}. "
            "While such a directory is in a log dir, Kafka does not start: move it away"
        )
    count = format_count(done.partition_count, "partition")
    sentence = f"{count} {'would be' if is_check else 'are'} handed back"
    if done.is_undone:
        sentence = f"an interrupted take-over {'would be' if is_check else 'is'} undone"
    facts = done._asdict() | {
        "created": [key._asdict() for key in done.created],
        "deleted": [key._asdict() for key in done.deleted],
    }
    print_facts(facts, output_format, sentence)


def _names(keys: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, keys))


def _wish(log_dirs: tuple[str, ...], config_file: BinaryIO | None) -> tuple[Wish, dict[str, str]]:
    """Read the log dirs and the defaults of topics; also return all entries of the file."""
    entries: dict[str, str] = {}
    if config_file is not None:
        data = config_file.read()
        config_file.seek(0)
        with wrong_usage(f" ({config_file.name})"):
            entries = parse_properties(data)
    wish = read_wish(log_dirs, config_file, {})
    if wish.found.problems:
        raise click.UsageError("; ".join(wish.found.problems), click.get_current_context())
    return wish, entries
