"""Provide the parts that the commands share: options, partition arguments, opening a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import click

from logstore import LogStore, TopicPartition
from logstore.cli import warnings_once
from logstore.cli.interrupts import Interrupts, held
from logstore.cli.output import progress_bar
from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.names import validate_partition, validate_topic

ENVIRONMENT_NAME = "LOGSTORE_LOG_DIRS"

FORMAT_HELP = {
    "text": "one line each",
    "table": "for people, with a heading",
    "json": "one document",
    "jsonl": "one object per line",
    "raw": "values unchanged",
}

Function = TypeVar("Function", bound=Callable[..., Any])


def log_dirs_option(function: Function) -> Function:
    """Add the option `--log-dirs`; if the user omits it, `named_log_dirs` finds the log dirs."""
    return click.option(
        "--log-dirs",
        "log_dirs",
        multiple=True,
        metavar="DIR[,DIR...]",
        help=f"Log dirs of the store; can be repeated.  [env var: {ENVIRONMENT_NAME}]",
    )(function)


def format_option(
    choices: tuple[str, ...] = ("table", "json", "jsonl"), default: str = "table"
) -> Callable[[Function], Function]:
    """Add the option `--format`."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help="; ".join(f"{choice}: {FORMAT_HELP[choice]}" for choice in choices) + ".",
    )


def partition_arguments(function: Function) -> Function:
    """Add the arguments `TOPIC [PARTITION]`."""
    function = click.argument("partition", required=False, type=click.IntRange(min=0))(function)
    return click.argument("topic")(function)


def named_log_dirs(log_dirs: tuple[str, ...]) -> list[str]:
    """Return the log dirs from the command's options, the program's options or the environment.

    Raises:
        click.UsageError: no log dir is given by an option or by the environment.

    """
    context = click.get_current_context(silent=True)
    texts = log_dirs or (context.obj if context is not None and context.obj else ())
    if not texts:
        texts = (os.environ.get(ENVIRONMENT_NAME, ""),)
    paths = [path.strip() for text in texts for path in text.split(",") if path.strip()]
    if not paths:
        raise click.UsageError(
            f"no log dirs: give --log-dirs DIR[,DIR...], or set {ENVIRONMENT_NAME}", context
        )
    return paths


@contextmanager
def store_for_reading(
    log_dirs: tuple[str, ...], *, is_overview: bool = False
) -> Iterator[LogStore]:
    """Open the store read-only; another process may own the store at the same time.

    If `is_overview` is True, print warnings on stderr about missing log dirs and unknown files.
    """
    with LogStore.open(named_log_dirs(log_dirs), read_only=True) as store:
        if is_overview:
            for warning in store.recovery_report.warnings:
                note(f"warning: {warning}")
        yield store


@contextmanager
def store_as_owner(
    log_dirs: tuple[str, ...],
    *,
    format_new: bool = False,
    must_exist: bool = False,
    interrupts: Interrupts | None = None,
    is_told: bool = True,
) -> Iterator[LogStore]:
    """Open the store for changes; report on stderr the work that its recovery had to do.

    While the store opens, Ctrl-C works immediately, because recovery can be interrupted safely.
    While the store is open, Ctrl-C works only where the caller's `interrupts` allow it. So the
    store is always closed cleanly.

    Args:
        log_dirs: the log dirs as given on the command line.
        format_new: whether to add unformatted dirs to a store that exists.
        must_exist: whether to raise an error for a log dir without a store (for example, at a
            mistyped path), instead of creating a new store there.
        interrupts: the interrupts that the caller holds back. If `interrupts` is None, this
            function holds back interrupts itself.
        is_told: whether to report the work that the recovery had to do.
    """
    paths = named_log_dirs(log_dirs)
    with nullcontext(interrupts) if interrupts is not None else held() as mine:
        if must_exist:
            LogStore.open(paths, read_only=True).close()
        with mine.allowed(), progress_bar("recovering", None, is_bytes=False) as show:
            store = LogStore.open(
                paths, format_new=format_new, progress=lambda at: show(at.logs_done, at.logs_total)
            )
        with store:
            if is_told:
                tell_of_opening(store)
            yield store


def tell_offline_dirs(store: LogStore) -> None:
    """Report on stderr the log dirs that do not work, with the reasons and the remedies."""
    for directory in store.recovery_report.offline_dirs:
        warnings_once.tell(f"log dir {directory.path} is offline: {directory.reason}")


def tell_of_opening(store: LogStore) -> None:
    """Report on stderr anything that was wrong when the store was opened."""
    report = store.recovery_report
    if report.warnings or report.cut_bytes or not report.is_sound:
        for line in warnings_once.news_of(str(report)):
            note(line)


@contextmanager
def wrong_usage(hint: str = "") -> Iterator[None]:
    """If the user's input causes a ValueError or TypeError in this block, end with exit code 2."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, LogStoreError):
            raise
        raise click.UsageError(f"{error}{hint}", click.get_current_context(silent=True)) from error


def note(text: str) -> None:
    """Print a line for people on stderr."""
    click.echo(text, err=True)


def partitions_of(
    store: LogStore,
    topic: str | None,
    partition: int | None,
    others: Iterable[TopicPartition] = (),
) -> list[TopicPartition]:
    """Return the partitions that `TOPIC [PARTITION]` names; `orders-0` is accepted, too.

    Args:
        others: partitions that also exist, although `store` does not list them (for example,
            because their disk failed).

    Raises:
        UnknownPartitionError: the store has no such partition.

    """
    every = sorted({*store, *others})
    if topic is None:
        return every
    if partition is not None:
        with wrong_usage():
            return [TopicPartition(validate_topic(topic), validate_partition(partition))]
    found = [name for name in every if name.topic == topic]
    if not found:
        head, dash, tail = topic.rpartition("-")
        named = [name for name in every if name.topic == head and str(name.partition) == tail]
        if dash and named:
            return named
        raise UnknownPartitionError(
            f"there is no topic {topic} in this store", topic=topic, partition=0
        )
    return found


def one_partition(store: LogStore, topic: str, partition: int | None) -> TopicPartition:
    """Return the only partition that `TOPIC [PARTITION]` names.

    Raises:
        click.UsageError: the topic has several partitions, and none was named.

    """
    found = partitions_of(store, topic, partition)
    if len(found) > 1:
        numbers = ", ".join(str(name.partition) for name in found)
        raise click.UsageError(
            f"topic {topic} has partitions {numbers}: name one of them",
            click.get_current_context(silent=True),
        )
    return found[0]
