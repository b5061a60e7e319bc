"""The command line `logstore`.

`main` is the program. click comes with the extra `cli`; without it there is one clear line and
exit code 2. Nothing here imports rich or pyarrow before it is needed.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line with the arguments of this process, and exit."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write(
            "error: the command line needs click and rich: pip install 'logstore[cli]'\n"
        )
        raise SystemExit(2) from None
    from logstore.cli.app import app

    app(prog_name="logstore")
