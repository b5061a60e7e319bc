"""Implement the commands about topics: `topics`, `create`, `delete`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from logstore import LogConfig, LogStore, TopicPartition
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    note,
    partition_arguments,
    partitions_of,
    store_for_reading,
    tell_offline_dirs,
    wrong_usage,
)
from logstore.cli.output import Column, Row, count_text, print_rows, size_text
from logstore.cli.owner import absolute, administered, offline_with_owner
from logstore.disk.files import real_path
from logstore.errors import LogDirOfflineError, LogStoreError
from logstore.names import PARTITION_MAX, dir_name, validate_topic
from logstore.store.admin.client import find_owner

TOPIC_COLUMNS = [
    Column("topic", "topic"),
    Column("partitions", "partitions", count_text, is_number=True),
    Column("offsets", "offsets", count_text, is_number=True),
    Column("size_bytes", "size", size_text, is_number=True),
    Column("log_dirs", "log dirs", lambda paths: str(len(paths)), is_number=True),
    Column("state", "state"),
]
PARTITION_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", str, is_number=True),
    Column("log_start_offset", "start offset", count_text, is_number=True),
    Column("log_end_offset", "end offset", count_text, is_number=True),
    Column("size_bytes", "size", size_text, is_number=True),
    Column("log_dir", "log dir", lambda path: path or "-"),
    Column("state", "state"),
]


CONFIG_COLUMNS = [
    Column("key", "key"),
    Column("old", "old", lambda value: "no limit" if value is None else str(value)),
    Column("new", "new", lambda value: "no limit" if value is None else str(value)),
]


def partition_row(store: LogStore, name: TopicPartition, away: LogStoreError | None = None) -> Row:
    """Build a partition's row; if the partition is offline or incomplete, `state` has the reason.

    If the caller knows that the partition is offline, `away` is the error with the reason.
    """
    row: Row = {
        "topic": name.topic,
        "partition": name.partition,
        "log_start_offset": None,
        "log_end_offset": None,
        "size_bytes": None,
        "log_dir": None,
        "state": "online",
    }
    try:
        if away is not None:
            raise away
        log = store.log(name.topic, name.partition)
        row["log_dir"] = log.log_dir
        row["log_start_offset"] = log.log_start_offset
        row["log_end_offset"] = log.log_end_offset
        row["size_bytes"] = log.size_bytes
        for entry in store.recovery_report.incomplete:
            if entry.topic_partition == name:
                row["state"] = f"incomplete: {entry.error}"
    except LogStoreError as error:
        row["state"] = f"offline: {error}"
        if isinstance(error, LogDirOfflineError):
            row["log_dir"] = error.path
    return row


def topic_row(topic: str, partition_rows: list[Row]) -> Row:
    """Sum up the partitions of a topic; the sums leave out offline partitions."""
    good = [row for row in partition_rows if not row["state"].startswith("offline")]
    offline = len(partition_rows) - len(good)
    incomplete = sum(row["state"] != "online" for row in good)
    counts = {"offline": offline, "incomplete": incomplete}
    return {
        "topic": topic,
        "partitions": len(partition_rows),
        "offsets": sum(row["log_end_offset"] - row["log_start_offset"] for row in good),
        "size_bytes": sum(row["size_bytes"] for row in good),
        "log_dirs": sorted({row["log_dir"] for row in good}),
        "offline_partitions": offline,
        "incomplete_partitions": incomplete,
        "state": ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "online",
    }


def tell_not_online(partition_rows: list[Row]) -> None:
    """Report on stderr which partitions are offline or incomplete, grouped by log dir."""
    by_dir: dict[str, list[str]] = {}
    for row in partition_rows:
        where = f"with {row['log_dir']}" if row["log_dir"] else "for other reasons"
        if row["state"].startswith("incomplete"):
            where = f"incomplete in {row['log_dir']}"
        else:
            where = f"offline {where}"
        by_dir.setdefault(where, []).append(f"{row['topic']}-{row['partition']}")
    for where, names in by_dir.items():
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        note(f"{where}: {', '.join(names[:10])}{more}")


@click.command(short_help="List topics or their partitions.")
@click.argument("topic", required=False)
@log_dirs_option
@format_option()
@click.option("--partitions", "-p", "by_partition", is_flag=True, help="One line per partition.")
@click.pass_context
def topics(
    ctx: click.Context,
    topic: str | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    by_partition: bool,
) -> None:
    """List the topics, or the partitions of one TOPIC.

    OFFSETS is the number of offsets between the start and the end of each log. OFFSETS is the
    number of records, unless a repair or a compaction made offsets without a record. The exit code
    is 1 if a log dir is offline, or if a partition is offline or incomplete. Offline and incomplete
    partitions are named on stderr.

    \b
    Examples:
      logstore topics
      logstore topics orders
      logstore topics --partitions --format jsonl | jq -r .log_dir
    """
    with store_for_reading(log_dirs, is_overview=True) as store:
        tell_offline_dirs(store)
        away = offline_with_owner(log_dirs)
        names = partitions_of(store, topic, None, away)
        rows = [partition_row(store, name, away.get(name)) for name in names]
        is_a_dir_offline = bool(store.recovery_report.offline_dirs)
    others = [row for row in rows if row["state"] != "online"]
    if by_partition or topic is not None:
        print_rows(rows, PARTITION_COLUMNS, output_format)
    else:
        summed = [
            topic_row(name, [row for row in rows if row["topic"] == name])
            for name in sorted({row["topic"] for row in rows})
        ]
        print_rows(summed, TOPIC_COLUMNS, output_format)
        tell_not_online(others)
    if not rows and output_format == "table":
        note("no topics yet; create a topic with: logstore create TOPIC")
    ctx.exit(1 if others or is_a_dir_offline else 0)


def parse_config(settings: tuple[str, ...]) -> LogConfig | None:
    """Build a configuration from `key=value` texts; Kafka's dotted keys are accepted, too."""
    if not settings:
        return None
    texts = split_settings("--config needs", settings)
    with wrong_usage():
        values: dict[str, Any] = {key: config_value(value) for key, value in texts.items()}
        return LogConfig(**values)


def split_settings(what: str, settings: tuple[str, ...]) -> dict[str, str]:
    """Split `key=value` texts; for other texts, raise a usage error that begins with `what`."""
    texts: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise click.UsageError(
                f"{what} KEY=VALUE, not {setting!r}", click.get_current_context()
            )
        texts[key.strip().replace(".", "_")] = value.strip()
    return texts


def config_value(text: str) -> int | str:
    """Convert text to int if it is a whole number; return other text, such as 7d, unchanged."""
    if text.lstrip("-").isdigit():
        return int(text)
    return text


@click.command(short_help="Create partitions of a topic.")
@click.argument("topic")
@click.argument(
    "numbers", metavar="[PARTITION]...", nargs=-1, type=click.IntRange(0, PARTITION_MAX)
)
@log_dirs_option
@format_option()
@click.option(
    "--partitions",
    "-p",
    "count",
    type=click.IntRange(1, PARTITION_MAX + 1),
    help="Create 0 to N - 1.",
)
@click.option("--log-dir", metavar="DIR", help="Their log dir (default: by free space).")
@click.option(
    "--config",
    "-c",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Kafka's topic keys, such as segment_bytes=64MiB; repeatable; stored with the partition.",
)
@click.option("--is-new", is_flag=True, help="Create even while a log dir is offline (KIP-112).")
@click.option("--exist-ok", is_flag=True, help="Do not change partitions that exist.")
def create(
    topic: str,
    numbers: tuple[int, ...],
    log_dirs: tuple[str, ...],
    output_format: str,
    count: int | None,
    log_dir: str | None,
    settings: tuple[str, ...],
    is_new: bool,
    exist_ok: bool,
) -> None:
    """Create partitions of TOPIC (by default partition 0).

    If the store is new, its log dirs are formatted first.

    \b
    Examples:
      logstore create orders --log-dirs /disk1/logs,/disk2/logs --partitions 6
      logstore create orders 6 7
      logstore create audit -c segment_bytes=64MiB -c retention_ms=7d
    """
    if count is not None and numbers:
        raise click.UsageError(
            "give partition numbers or --partitions, not both", click.get_current_context()
        )
    partitions = range(count) if count is not None else numbers or (0,)
    config = parse_config(settings)
    check_input(topic, partitions, log_dirs, log_dir)
    rows: list[Row] = []
    with administered(log_dirs, must_exist=False) as operator:
        arguments = {
            "topic": topic,
            "config": None if config is None else config.to_dict(),
            "exist_ok": exist_ok,
        }
        try:
            with wrong_usage():
                if count is not None and log_dir is None and not is_new:
                    made = operator.call("create_topic", {**arguments, "partitions": count})
                    rows += made["partitions"]
                    partitions = ()
                for partition in partitions:
                    one = {"partition": partition, "log_dir": absolute(log_dir), "is_new": is_new}
                    rows.append(operator.call("create", {**arguments, **one}))
        finally:
            if output_format == "table":
                for row in rows:
                    done = "found" if row.get("existed") else "created"
                    click.echo(f"{done} {topic}-{row['partition']} in {row['log_dir']}")
            else:
                print_rows(rows, [], output_format)


def check_input(
    topic: str, partitions: Sequence[int], log_dirs: tuple[str, ...], log_dir: str | None
) -> None:
    """Raise click.UsageError for mistakes that can be found before anything is created."""
    with wrong_usage():
        dir_name(validate_topic(topic), max(partitions))
        if not isinstance(partitions, range) and len(set(partitions)) < len(partitions):
            raise ValueError(f"a partition is named twice: {', '.join(map(str, partitions))}")
    named = named_log_dirs(log_dirs)
    # The owner of the store may have log dirs that the user did not name.
    if log_dir is None or find_owner(named) is not None:
        return
    if real_path(log_dir) not in map(real_path, named):
        raise click.UsageError(f"--log-dir {log_dir} is not among {', '.join(named)}")


def confirmed(question: str) -> bool:
    """Ask the user; if there is no terminal, raise click.UsageError."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        click.echo(err=True)
        text = "nothing was deleted: there is no terminal at which to ask; give --yes"
        raise click.UsageError(text, click.get_current_context()) from None


def check_exists(view: LogStore, name: TopicPartition) -> None:
    """Check that a partition exists, so that the user is not asked about a missing partition.

    A partition also exists if only the catalog lists it. For example, the log dir of the partition
    may be an old copy that was made before the partition.

    Raises:
        UnknownPartitionError: the partition does not exist.
        LogDirOfflineError: the partition may be on a log dir that does not work.
    """
    if name not in view and view.host.replicas.catalog.directory_of(name) is None:
        view.log(*name)


@click.command(short_help="Delete a topic or a partition.")
@partition_arguments
@log_dirs_option
@format_option()
@click.option("--yes", "-y", is_flag=True, help="Delete without a question.")
def delete(
    topic: str,
    partition: int | None,
    log_dirs: tuple[str, ...],
    output_format: str,
    yes: bool,
) -> None:
    """Delete all partitions of TOPIC, or one PARTITION, with all records.

    The names can be used again at once; the files are removed in the background. If a partition is
    on an offline log dir, the command refuses to delete that partition and the partitions after it.

    \b
    Examples:
      logstore delete orders
      logstore delete orders-0 --yes
    """
    with store_for_reading(log_dirs, is_overview=True) as view:
        names = partitions_of(view, topic, partition)
        for name in names:
            check_exists(view, name)
    listed = ", ".join(map(str, names))
    if not yes and not confirmed(f"delete {listed} with all records?"):
        raise click.ClickException("nothing was deleted")
    rows: list[Row] = []
    with administered(log_dirs) as operator:
        try:
            for name in names:
                arguments = {"topic": name.topic, "partition": name.partition}
                rows.append(operator.call("delete", arguments))
        finally:
            if output_format == "table":
                for row in rows:
                    click.echo(f"deleted {row['topic']}-{row['partition']}")
            else:
                print_rows(rows, [], output_format)


@click.command(short_help="Change the configuration of a partition.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0, PARTITION_MAX))
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@log_dirs_option
@format_option()
def alter(
    topic: str,
    partition: int,
    settings: tuple[str, ...],
    log_dirs: tuple[str, ...],
    output_format: str,
) -> None:
    """Change the configuration of a partition, even while a process has the store open.

    The keys are the same as for `create --config`; Kafka's dotted names are accepted too. Sizes are
    bytes or text such as 64MiB, durations are ms or text such as 7d, and -1 means no limit. KEY= or
    KEY=default resets a key to the store's default. If one change is refused, no change is made.

    \b
    Examples:
      logstore alter orders 0 retention_ms=7d segment_bytes=64MiB
      logstore alter orders 0 retention_ms=
    """
    texts = split_settings("alter needs", settings)
    changes = {
        key: None if value in ("", "default") else config_value(value)
        for key, value in texts.items()
    }
    arguments = {"topic": topic, "partition": partition, "changes": changes}
    with administered(log_dirs) as operator, wrong_usage():
        outcome: Row = operator.call("set_config", arguments)
    name: Row = {"topic": topic, "partition": partition}
    rows = [
        name | {"key": key, "old": outcome["old"][key], "new": outcome["new"][key]}
        for key in changes
    ]
    print_rows(rows, CONFIG_COLUMNS, output_format)


COMMANDS: list[click.Command] = [topics, create, delete, alter]
