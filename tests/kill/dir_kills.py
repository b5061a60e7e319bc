"""End a process at the n-th change it makes to its log dirs, and judge what is left.

Run as a program: a small process that forks each victim. Prints one JSON line per scenario: kills,
and the changes that a whole life makes.

    python tests/kill/dir_kills.py --every 1 --dir /dev/shm/x               # at every change
    python tests/kill/dir_kills.py --every 11 --first 3 --dir /dev/shm/x    # at the 3rd, 14th, ...
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kill.dir_judge import Ledger, judge
from kill.dir_victims import (
    CONFIG,
    ORDERS,
    OTHER,
    QUIET,
    RECORDS,
    SCENARIOS,
    Scenario,
    Victim,
    value,
)
from logstore import LogStore

CHANGES_MAX = 5000


def prepare(base: Path) -> None:
    """Make a store that was closed in order, and one that crashed with a torn tail."""
    root = base / "stopped"
    with LogStore.open([root / name for name in "abz"], config=QUIET, admin_socket=False) as store:
        for key, name in ((ORDERS, "a"), (OTHER, "z")):
            log = store.create(*key, log_dir=root / name, config=CONFIG)
            log.extend([value(key, n) for n in range(RECORDS - 5)])
            log.flush()
            log.extend([value(key, n) for n in range(RECORDS - 5, RECORDS)])
        shutil.copytree(root, base / "crashed")
    active = sorted((base / "crashed" / "a" / "orders-0").glob("*.log"))[-1]
    active.write_bytes(active.read_bytes() + b"\0" * 7 + b"torn")
    for name in ("stopped", "crashed"):
        (base / name / "c").mkdir()


def kill_once(root: Path, scenario: Scenario, nth: int, ledger: Ledger) -> int | None:
    """Run a victim; give how many changes it made, or None when it was killed."""
    said, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(said)
            Victim(root, say, nth).run(scenario)
        except BaseException as error:  # noqa: BLE001 - the parent must not go on twice
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(2)
    os.close(say)
    changes = None
    with open(said, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("C "):
                changes = int(line[2:])
            else:
                ledger.hear(line.rstrip())
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, 1), f"it ended with {status}"
    return changes


def kill_all(base: Path, scenario: Scenario, first: int, every: int) -> dict[str, object]:
    """Kill at the chosen changes, until a victim outlives its work."""
    root = base / "work"
    for kills, nth in enumerate(range(first, CHANGES_MAX, every)):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base / ("stopped" if scenario.is_clean else "crashed"), root)
        if scenario.stage is not None:
            scenario.stage(root)
            for name in "abz":
                (root / name / ".clean-shutdown").unlink()
        ledger = Ledger()
        try:
            changes = kill_once(root, scenario, nth, ledger)
            judge(root, ledger, nth)
        except BaseException as error:
            error.add_note(f"{scenario.name}, killed at change {nth}, {ledger.pending=}")
            raise
        if changes is not None:
            return {"scenario": scenario.name, "kills": kills, "changes": changes}
    raise AssertionError("it never ends")


def main() -> None:
    """Go through the scenarios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    prepare(options.dir)
    for scenario in SCENARIOS:
        if options.only in scenario.name:
            print(
                json.dumps(kill_all(options.dir, scenario, options.first, options.every)),
                flush=True,
            )


if __name__ == "__main__":
    main()
