"""Implement the command `logstore top`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from broker.top.screen import Line, screen
from broker.top.source import NoAnswerError, address_of, from_owner, from_page
from logstore.cli.options import log_dirs_option, named_log_dirs, wrong_usage
from logstore.store.admin.client import find_owner

WIDTH, HEIGHT = 80, 24
STYLES: dict[str, dict[str, Any]] = {
    "": {}, "title": {"bold": True}, "bad": {"fg": "red", "bold": True}, "soft": {"dim": True},
}  # fmt: skip
# Escape sequences of terminals: use another screen and hide the cursor; go to the first place;
# erase the rest of the line; erase the rest of the screen; undo the first sequence.
BEGIN, HOME, END_LINE, END_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[K", "\x1b[J"
END = "\x1b[?25h\x1b[?1049l"

Get = Callable[[], dict[str, Any]]


@click.command("top", short_help="Watch a broker or an open store in the terminal.")
@log_dirs_option
@click.option(
    "--url",
    metavar="http://HOST:PORT",
    help="The page of a broker; see `logstore broker --http`.",
)
@click.option("--once", is_flag=True, help="Print one screen, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two screens.",
)
def top(log_dirs: tuple[str, ...], url: str | None, once: bool, interval: float) -> None:
    """Watch a broker or an open store in the terminal, until Ctrl-C.

    With --url, this command reads the page of a broker, which can run on another machine. Without
    --url, this command uses an admin socket to ask the process that has the log dirs open. That
    process knows log dirs, moves and sizes, but no rates, groups or requests. If the output is not
    a terminal, one screen is printed, as with --once.

    \b
    Examples:
      logstore top --url http://127.0.0.1:8080
      logstore top --log-dirs /disk1/logs,/disk2/logs
      logstore top --url http://127.0.0.1:8080 --once
    """
    get = _source(log_dirs, url)
    if once or not sys.stdout.isatty():
        for line in _lines(get, _width(), None):
            click.echo(line.text)
        return
    with _whole_screen():
        try:
            _watch(get, interval)
        except KeyboardInterrupt:  # Ctrl-C is the usual end of this command
            return


def _source(log_dirs: tuple[str, ...], url: str | None) -> Get:
    if url is not None:
        with wrong_usage():
            address_of(url)
        return partial(from_page, url)
    owner = find_owner(named_log_dirs(log_dirs))
    if owner is None:
        raise click.ClickException(
            "no process has the store open, or the process serves no admin socket; to watch a "
            "broker, give --url"
        )
    return partial(from_owner, owner)


def _lines(get: Get, width: int, height: int | None) -> list[Line]:
    """Get one screen; raise ClickException if there is no answer."""
    try:
        return screen(get(), width, height)
    except NoAnswerError as error:
        raise click.ClickException(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise click.ClickException(f"the answer is not a document of a page: {error!r}") from error


def _watch(get: Get, interval: float) -> None:
    """Draw one screen after another.

    If there is no answer, draw the previous screen and the reason.
    """
    pause = threading.Event()
    last: list[Line] = []
    while True:
        width, height = _size()
        try:
            last = _lines(get, width, height)
            shown = last
        except click.ClickException as error:
            if not last:
                raise
            shown = [*last[: height - 1], Line(error.message[:width], "bad")]
        _draw(shown)
        pause.wait(interval)


def _draw(lines: list[Line]) -> None:
    text = [click.style(line.text, **STYLES[line.tone]) + END_LINE for line in lines]
    click.echo(HOME + "\n".join(text) + END_SCREEN, nl=False, color=None)
    sys.stdout.flush()


@contextmanager
def _whole_screen() -> Iterator[None]:
    click.echo(BEGIN, nl=False)
    try:
        yield
    finally:
        click.echo(END, nl=False)
        sys.stdout.flush()


def _size() -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return WIDTH, HEIGHT
    return columns or WIDTH, lines or HEIGHT


def _width() -> int:
    """Return the width of the screen: from the terminal or from COLUMNS; otherwise 80."""
    text = os.environ.get("COLUMNS", "")
    if text.isascii() and text.isdigit() and len(text) < 5:
        return int(text)
    return _size()[0]
