"""The program as a whole: help, exit codes, one-line errors, what it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from logstore import __version__
from logstore.cli.app import ELSEWHERE, Elsewhere, app
from support.command_line import Run, Start, owner_of

COMMANDS = (
    *(
        "add-dir",
        "alter",
        "append",
        "bench",
        "broker",
        "broker-user",
        "cat",
        "cluster",
        "compact",
        "cordon",
        "create",
    ),
    "delete",
    *("demo", "dirs", "dump"),
    *(
        "format",
        "hand-back",
        "kafka",
        "log-dirs",
        "metrics",
        "move",
        "prefer-dir",
        "promote",
        "reassign",
    ),
    *(
        "remove-dir",
        "reopen",
        "repair",
        "tail",
        "take-offline",
        "take-over",
        "top",
        "topics",
        "uncordon",
    ),
    "verify",
)


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False
    )


def test_every_command_is_there() -> None:
    """The commands are those that are promised."""
    assert tuple(sorted(app.commands)) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    """The help of each command ends well and shows how it is called."""
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"logstore {command}" in result.output
    assert "Example" in result.output


def test_version_is_printed() -> None:
    """`--version` names the program and its version."""
    result = CliRunner().invoke(app, ["--version"])
    assert result.output == f"logstore {__version__}\n"


def test_wrong_usage_is_2(run: Run) -> None:
    """An unknown command, option or choice gives exit code 2 and an error line."""
    for args in (["frobnicate"], ["topics", "--what"], ["dirs", "--format", "xml"], ["cat"]):
        result = run(*args)
        assert result.exit_code == 2, args
        assert result.stderr.splitlines()[-1].startswith("error: ")


def test_no_log_dirs_is_wrong_usage() -> None:
    """Without log dirs from anywhere, the error names both ways to give them."""
    result = CliRunner().invoke(app, ["topics"], env={"LOGSTORE_LOG_DIRS": None})
    assert result.exit_code == 2
    assert "--log-dirs" in result.stderr and "LOGSTORE_LOG_DIRS" in result.stderr


@pytest.mark.parametrize("before", [True, False])
def test_log_dirs_before_or_after_the_command(orders: list[str], before: bool) -> None:
    """`--log-dirs` is understood in both places, with commas and repeated."""
    options = ["--log-dirs", orders[0], "--log-dirs", orders[1]]
    args = [*options, "topics"] if before else ["topics", "--log-dirs", ",".join(orders)]
    result = CliRunner().invoke(app, args, env={"LOGSTORE_LOG_DIRS": None})
    assert result.exit_code == 0
    assert "orders" in result.output


def test_an_error_is_one_line(run: Run, orders: list[str]) -> None:
    """A failed operation gives exit code 1 and one line without a traceback."""
    result = run("cat", "nothing", "0")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [("topics",), ("append", "orders"), ("repair", "orders", "0")])
def test_a_store_that_does_not_exist(run: Run, log_dirs: list[str], args: tuple[str, ...]) -> None:
    """Only `create`, `format` and `append --create` make a store; a mistyped dir is an error."""
    result = run(*args, stdin=b"")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert not any(map(os.path.exists, log_dirs))


@pytest.mark.parametrize(
    "args", [("append", "orders", "0"), ("create", "other"), ("repair", "orders"), ("format",)]
)
def test_changing_a_locked_store_names_the_owner(
    run: Run, orders: list[str], args: tuple[str, ...]
) -> None:
    """Without an admin socket to ask, what changes a store fails and names the owner's pid."""
    with owner_of(orders, admin_socket=False) as owner:
        result = run(*args, stdin=b"")
        assert result.exit_code == 1
        assert str(owner.pid) in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        ("topics",),
        ("topics", "orders"),
        ("dirs",),
        ("log-dirs", "--describe"),
        ("cat", "orders", "0"),
        ("tail", "orders", "0", "--timeout", "0"),
        ("dump", "orders", "0", "--records"),
        ("verify",),
    ],
)
def test_reading_works_beside_an_owner(run: Run, orders: list[str], args: tuple[str, ...]) -> None:
    """Every command that only reads works while another process appends."""
    with owner_of(orders) as owner:
        assert owner.append(b"fresh") == 10
        result = run(*args)
        assert result.exit_code == 0, result.output
        if args[0] in ("cat", "tail", "dump"):
            assert "fresh" in result.output
        assert owner.append(b"more") == 11


def test_a_closed_pipe_is_quiet(orders: list[str], start: Start) -> None:
    """`logstore cat | head` ends without a word about the pipe."""
    seeded = start("append", "orders", "0")
    seeded.communicate(b"a line of some length to fill the pipe\n" * 50_000)
    assert seeded.returncode == 0
    child = start("cat", "orders", "0")
    assert child.stdout is not None and child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0
    child.stdout = None


@pytest.mark.parametrize(
    "args",
    [("cat", "orders"), ("cat", "orders", "--format", "json"), ("topics",), ("dump", "orders")],
)
def test_an_output_that_is_full(orders: list[str], args: tuple[str, ...]) -> None:
    """A disk that takes no more output is a failure of one line."""
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "logstore.cli", *args, "--log-dirs", ",".join(orders)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "error: input or output: No space left on device\n"


def test_without_click_one_line_names_the_extra() -> None:
    """A bare installation says what to install, and exits 2."""
    code = "import sys; sys.modules['click'] = None; from logstore.cli import main; main()"
    result = run_python(code)
    assert result.returncode == 2
    assert "pip install 'logstore[cli]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("args", [["kafka", "ls", "/"], ["kafka", "verify", "--log-dirs", "/"]])
def test_without_crc32c_one_line_names_the_extra(args: list[str]) -> None:
    """So do the commands that need another one."""
    result = run_python(
        f"import sys; sys.modules['crc32c'] = None; sys.argv[1:] = {args}\n"
        "from logstore.cli import main; main()"
    )
    assert result.returncode == 1
    assert "pip install 'logstore[kafka]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_start_imports_nothing_heavy() -> None:
    """Neither rich nor pyarrow nor pandas is imported before there is something to draw."""
    code = (
        "import sys, logstore.cli.app\n"
        "print(*sorted({'rich', 'pyarrow', 'pandas', 'polars'} & set(sys.modules)))"
    )
    result = run_python(code)
    assert result.stdout.strip() == "", result.stderr


@pytest.mark.parametrize("args", [["--help"], ["topics", "--help"], ["kafka", "--help"]])
def test_a_command_elsewhere_is_imported_by_its_own_call_alone(args: list[str]) -> None:
    """The list of commands and every other command do without the modules of `kafka` and `move`."""
    code = (
        "import sys, logstore.cli.app as app\n"
        "try: app.app.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('imported', *sorted(name for name, (module, _) in app.ELSEWHERE.items()"
        " if module in sys.modules))"
    )
    result = run_python(code, *args)
    expected = ["kafka"] if args[0] == "kafka" else []
    assert result.stdout.splitlines()[-1].split() == ["imported", *expected], result.stderr


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_the_line_of_a_command_elsewhere_is_its_own(name: str) -> None:
    """What the list says of a command that it does not import is what the command says."""
    command = app.commands[name]
    assert isinstance(command, Elsewhere)
    assert command.load().short_help == command.short_help


def test_tables_without_rich(orders: list[str]) -> None:
    """Without rich a table is plain columns, also on a terminal."""
    code = (
        "import sys; sys.modules['rich'] = None; sys.stdout.isatty = lambda: True\n"
        "from logstore.cli import main; sys.argv = ['logstore', *sys.argv[1:]]; main()"
    )
    result = run_python(code, "topics", "--log-dirs", ",".join(orders))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0].split()[0] == "TOPIC"


def test_ctrl_c_while_following(orders: list[str], start: Start) -> None:
    """Ctrl-C ends `tail` with 130 and no traceback."""
    child = start("tail", "orders", "0", "--offset", "start")
    assert child.stdout is not None
    for _ in range(10):
        child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode == 130
    assert errors.strip() == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["append orders 0", "topics"])
def test_regression_a_closed_standard_stream_is_an_empty_one(
    orders: list[str], command: str, closed: str
) -> None:
    """It ended in a traceback."""
    line = f"{sys.executable} -m logstore.cli {command} --log-dirs {','.join(orders)} {closed}"
    done = subprocess.run(
        ["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "command", ["append", "cat", "delete --yes", "dump", "promote", "repair", "tail", "verify"]
)
@pytest.mark.parametrize("name", [("a b", "0"), ("orders", "9999999999")])
def test_regression_a_name_that_cannot_be_is_wrong_usage(
    run: Run, orders: list[str], command: str, name: tuple[str, str]
) -> None:
    """It ended in a traceback."""
    result = run(*command.split(), *name)
    assert (result.exit_code, name[0 if name[0] == "a b" else 1] in result.stderr) == (2, True)
