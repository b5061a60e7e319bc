"""Check the rate of a throttle on the command line, before anything is opened or moved."""

from __future__ import annotations

import click

from mover.rates.throttle import AUTOMATIC, check_rate

UNLIMITED = "none"
ACCEPTED = "give a rate such as 50MB/s or 64KiB/s, or auto, or none for no limit"


def checked_rate(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Check the text of a rate, `auto` or `none`; click calls this for an option or argument.

    Raises:
        click.BadParameter: moves cannot have this rate.
    """
    if text is None:
        return None
    word = text.strip().lower()
    if word in (AUTOMATIC, UNLIMITED):
        return word
    try:
        check_rate(text)
    except ValueError as error:
        raise click.BadParameter(f"{error} ({ACCEPTED})", ctx, param) from error
    return text
