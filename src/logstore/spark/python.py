"""Choose the Python for Spark's own processes: the user's choice, or the Python of this process.

If Spark uses Unix sockets, Python is started through the script `bin/python`. The script starts our
daemon instead of Spark's daemon. Our daemon ends its workers silently (see `daemon`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

# The script in `bin` runs the Python whose path is in this environment variable.
COMMAND_NAME = "LOGSTORE_PYTHON"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "python")


def choose_python(environment: MutableMapping[str, str], *, is_quiet: bool) -> None:
    """Set the Python for Spark's own processes: the user's choice, or the Python of this process.

    Without this choice, Spark's processes run the first `python3` in PATH.

    Args:
        is_quiet: whether to start Python through the script, which exists only on this machine.
    """
    wanted = environment.get("PYSPARK_PYTHON", SCRIPT)
    if wanted == SCRIPT:  # the user chose no Python; keep the choice of an earlier session
        wanted = environment.get(COMMAND_NAME, sys.executable)
    environment[COMMAND_NAME] = wanted
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if is_quiet:
            environment[name] = SCRIPT
        elif environment.get(name, SCRIPT) == SCRIPT:
            environment[name] = wanted
