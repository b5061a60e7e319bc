"""Run Jepsen's test by hand, with PYTHONPATH=src:tests.

python -m jepsen run SEED [--seconds 60] [--results jepsen-runs]    one random run
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jepsen.random_run import Plan, run


def run_one(args: argparse.Namespace) -> int:
    """Do one random run."""
    result = run(Plan.of(args.seed, args.seconds), args.results / str(args.seed))
    print(result)
    return int(not result.is_good)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m jepsen")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("seed", type=int)
    one.add_argument("--seconds", type=float, default=60.0)
    one.add_argument("--results", type=Path, default=Path("jepsen-runs"))
    one.set_defaults(run=run_one)
    args = parser.parse_args()
    return int(args.run(args))


sys.exit(main())
