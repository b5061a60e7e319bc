"""Define the program: the group of all commands, and the exit code of each error."""

from __future__ import annotations

import importlib
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from logstore import __version__
from logstore.cli import warnings_once
from logstore.cli.commands import append as appending
from logstore.cli.commands import bench, dirs, dump, topics
from logstore.cli.commands import check as checking
from logstore.cli.commands import operate as operating
from logstore.cli.commands import read as reading
from logstore.cli.demo import command as demo
from logstore.cli.options import log_dirs_option
from logstore.errors import CorruptRecordBatchError, LogDirLockedError, LogStoreError

# After a signal, the exit code is 128 plus the signal's number, as in a shell (130 for Ctrl-C).
EXIT_SIGNALLED = 128

# The commands whose modules are imported late: each command's module, and its line in the help.
ELSEWHERE = {
    "broker": ("broker.cli", "Serve the store to Kafka's clients."),
    "broker-user": ("broker.user_command", "Create the first SCRAM users of a broker."),
    "cluster": (
        "cluster.tools.command_line",
        "See a cluster, elect leaders, move replicas between brokers.",
    ),
    "hand-back": ("broker.hand_over_command", "Hand log dirs back to their Kafka broker."),
    "kafka": ("logstore.cli.commands.kafka", "Read, adopt and export a Kafka broker's disks."),
    "move": ("mover.cli.moving", "Move replicas between log dirs: plan, run, watch, cancel."),
    "reassign": ("mover.cli.reassigning", "Run, check or cancel the moves of a reassignment file."),
    "take-over": ("broker.hand_over_command", "Take over the log dirs of a stopped Kafka broker."),
    "top": ("broker.top.command", "Watch a broker or an open store in the terminal."),
}

HELP = """Keep Kafka-style partition logs on several disks, and inspect them.

Name the log dirs of a store with --log-dirs, or once with LOGSTORE_LOG_DIRS.
Commands that read (topics, dirs, metrics, cat, tail, dump, verify) also work while another process
has the store open. In that case, that process runs the commands that operate the store (create,
delete, repair, cordon, ...). format and append need a store that no process has open.

\b
Examples:
  logstore demo
  export LOGSTORE_LOG_DIRS=/disk1/logs,/disk2/logs
  logstore create orders --partitions 3
  seq 1000 | logstore append orders 0
  logstore cat orders 0 --offset 990
  logstore tail orders 0
  logstore verify

Exit codes: 0 success, 1 a problem was found or the work failed, 2 wrong usage, 130 Ctrl-C.
"""


class Elsewhere(click.Command):
    """Represent a command in the help; its module is imported only when the command is called."""

    def __init__(self, name: str, module: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self.module = module

    def load(self) -> click.Command:
        """Import the command."""
        found: click.Command = getattr(
            importlib.import_module(self.module), (self.name or "").replace("-", "_")
        )
        return found


class Application(click.Group):
    """Run commands; each command ends with an exit code and at most one line about what failed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the called command, and import its module if the module is not loaded yet."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Elsewhere) else command, rest

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command and exit with its code."""
        extra["standalone_mode"] = False
        code = 0
        with warnings_once.each_once():
            try:
                result = super().main(*args, **extra)
                code = result if isinstance(result, int) else 0
            except click.ClickException as error:
                report(error)
                code = error.exit_code
            except click.Abort:
                code = EXIT_SIGNALLED + signal.SIGINT
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and handle errors and interrupts before click handles them."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            leave_pipe_quietly()
            return 0
        except LogStoreError as error:
            raise click.ClickException(explain(error)) from error
        except OSError as error:  # input or output failed; errors of a store are LogStoreErrors
            leave_pipe_quietly()
            where = error.filename or "input or output"
            raise click.ClickException(f"{where}: {error.strerror or error}") from error
        except ModuleNotFoundError:
            raise
        except ImportError as error:  # an extra is not installed, and the message names the extra
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt as error:
            return EXIT_SIGNALLED + int(error.args[0] if error.args else signal.SIGINT)


def explain(error: LogStoreError) -> str:
    """Format an error on one line for a person at a terminal."""
    if isinstance(error, LogDirLockedError):
        return (
            f"process {error.pid} has log dir {error.path} open, so this command cannot run; stop "
            "that process first (commands that only read also work while it runs)"
        )
    advice = ""
    if isinstance(error, CorruptRecordBatchError):
        advice = "; `verify` shows all damage, `repair` removes it from a log of this library"
    return (" ".join(str(error).split()) or type(error).__name__) + advice


def report(error: click.ClickException) -> None:
    """Print an error on one line; if the usage was wrong, print the usage line first."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
    click.echo(f"error: {error.format_message()}", err=True)


def leave_pipe_quietly() -> None:
    """Close stdout, so that the flush at exit does not fail on the broken pipe again."""
    with suppress(OSError):
        sys.stdout.close()


@click.group(
    cls=Application,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="logstore %(version)s")
@log_dirs_option
@click.pass_context
def app(ctx: click.Context, log_dirs: tuple[str, ...]) -> None:
    """Store the log dirs that are named before the command, as in `logstore --log-dirs A dirs`."""
    ctx.obj = log_dirs


for module_commands in (
    [demo.demo],
    dirs.COMMANDS,
    operating.COMMANDS,
    topics.COMMANDS,
    appending.COMMANDS,
    reading.COMMANDS,
    dump.COMMANDS,
    checking.COMMANDS,
    bench.COMMANDS,
    [Elsewhere(name, *place) for name, place in ELSEWHERE.items()],
):
    for subcommand in module_commands:
        app.add_command(subcommand)
