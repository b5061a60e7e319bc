"""Implement the command line `logstore`.

The function `main` runs the command line. The extra `cli` installs click. If click is missing, the
program prints one line that names the extra, and ends with exit code 2. This package imports rich
and pyarrow only when a command needs them.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line with the arguments of this process, and exit."""
    try:
        import click
    except ImportError:
        sys.stderr.write(
            "error: the command line needs click and rich: pip install 'logstore[cli]'\n"
        )
        raise SystemExit(2) from None
    from logstore.cli.app import app

    # If a standard stream is closed (`logstore ... >&-`), give its descriptor number to /dev/null.
    # Otherwise a file of a store could get this number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, click.open_file(os.devnull, mode))
    app(prog_name="logstore")
