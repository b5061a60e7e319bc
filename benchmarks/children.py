"""Run work that needs a new process: a crash, the memory of an open or a move, an import's time.

Run as `python -m benchmarks.children COMMAND ARGUMENTS`; the answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(tempfile.gettempdir(), f"logstore-bench-bytecode-{os.getuid()}")


def run(*words: str) -> Any:
    """Run a command of this module in a new interpreter, and return its answer."""
    paths = [REPOSITORY, *(path for path in sys.path if path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONPYCACHEPREFIX": CACHE}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have bytecode as well
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.children", *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout or "null")


def resident_mib(field: str = "VmRSS") -> float:
    """Read how much memory this process uses now, or its peak (`VmHWM`)."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} here")


def fill_and_die(path: str, size_bytes: str, batch_bytes: str) -> None:
    """Append batches of a given size, and end the process without a flush, as a kill does."""
    from benchmarks.engine import Engine
    from benchmarks.workload import RECORD_BYTES, equal_values

    count = int(batch_bytes) // RECORD_BYTES
    pool = [values[:count] for values in equal_values()]
    Engine(path).extend(pool, int(size_bytes) // int(batch_bytes))
    os._exit(0)


def weigh_open(path: str) -> dict[str, float]:
    """Open a store; return how much memory the open added to an interpreter with numpy."""
    import numpy as np  # noqa: F401

    before, peak_before = resident_mib(), resident_mib("VmHWM")
    from logstore import LogStore

    imported = resident_mib()
    started = time.perf_counter()
    store = LogStore.open(path)
    seconds = time.perf_counter() - started
    facts = {
        "seconds": seconds,
        "added_mib": resident_mib() - before,
        "added_peak_mib": resident_mib("VmHWM") - peak_before,
        "import_mib": imported - before,
    }
    store.close()
    return facts


def time_import() -> dict[str, float]:
    """Time `import logstore` after `import numpy`."""
    import numpy as np  # noqa: F401

    started = time.perf_counter()
    import logstore  # noqa: F401

    seconds = time.perf_counter() - started
    return {"seconds": seconds}


def weigh_move(home: str, target: str) -> dict[str, float]:
    """Move all replicas of a log dir; return how much the peak of the memory grew."""
    from logstore import LogStore
    from mover import ReplicaMover

    with LogStore.open([home, target]) as store, ReplicaMover(store, 1) as mover:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
            peak.write("5")  # reset the peak to the memory that is used now
        idle = resident_mib()
        for topic, partition in list(store):
            done = mover.move(topic, partition, target)
            done.wait()
            if done.error is not None:
                raise done.error
        return {"idle_mib": idle, "added_mib": resident_mib("VmHWM") - idle}


COMMANDS = {
    "fill_and_die": fill_and_die,
    "weigh_open": weigh_open,
    "weigh_move": weigh_move,
    "time_import": time_import,
}


if __name__ == "__main__":
    command: Any = COMMANDS[sys.argv[1]]
    print(json.dumps(command(*sys.argv[2:])))
