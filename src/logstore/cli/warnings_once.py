"""Print each warning once in a command: it may open the store, or look at it, more than once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

_printed: set[str] = set()


class _Printer(logging.Handler):
    """Prints the engine's warnings on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless this command has printed it."""
        tell(self.format(record))


@contextmanager
def each_once() -> Iterator[None]:
    """Print the engine's warnings on stderr, each text once, as long as a command runs."""
    _printed.clear()
    logger, printer = logging.getLogger("logstore"), _Printer(logging.WARNING)
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)


def tell(text: str) -> None:
    """Print a line on stderr, unless this command has printed it."""
    if text not in _printed:
        _printed.add(text)
        click.echo(text, err=True)


def news_of(report: str) -> list[str]:
    """Give the lines of a report that were not printed as warnings; none if that is all of them."""
    first, *rest = report.splitlines()
    news = [line for line in rest if line.strip() not in _printed]
    return [first, *news] if news or not rest else []
