"""Choose the Python that Spark's own processes run: the user's, else this one.

Over Unix sockets it is started through `bin/python`, a script that puts a daemon which ends its
workers in silence (see `daemon`) in the place of Spark's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

# The script in `bin` finds the Python to run by this.
COMMAND_NAME = "LOGSTORE_PYTHON"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "python")


def choose_python(environment: MutableMapping[str, str], *, is_quiet: bool) -> None:
    """Set the Python that Spark's own processes run: the user's, else this one.

    Without it they run whatever `python3` stands first in PATH.

    Args:
        is_quiet: have it started through the script, on this machine.
    """
    wanted = environment.get("PYSPARK_PYTHON", SCRIPT)
    if wanted == SCRIPT:  # or there is none: what a session before this one chose
        wanted = environment.get(COMMAND_NAME, sys.executable)
    environment[COMMAND_NAME] = wanted
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if is_quiet:
            environment[name] = SCRIPT
        elif environment.get(name, SCRIPT) == SCRIPT:
            environment[name] = wanted
