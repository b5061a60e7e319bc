"""Print each warning once per command, even if a command opens a store more than once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

_printed: set[str] = set()


class _Printer(logging.Handler):
    """Print the engine's warnings on stderr."""

    is_paused = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless this command has already printed it."""
        if not self.is_paused:
            tell(self.format(record))


@contextmanager
def each_once() -> Iterator[None]:
    """While a command runs, print the engine's warnings on stderr, each text only once."""
    _printed.clear()
    logger, printer = logging.getLogger("logstore"), _Printer(logging.WARNING)
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)


@contextmanager
def paused() -> Iterator[None]:
    """Do not print the engine's warnings, because another handler prints them."""
    _Printer.is_paused = True
    try:
        yield
    finally:
        _Printer.is_paused = False


def tell(text: str) -> None:
    """Print a line on stderr, unless this command has already printed it."""
    if text not in _printed:
        _printed.add(text)
        click.echo(text, err=True)


def news_of(report: str) -> list[str]:
    """Return the lines of a report, except those that were already printed as warnings."""
    first, *rest = report.splitlines()
    news = [line for line in rest if line.strip() not in _printed]
    return [first, *news] if news or not rest else []
