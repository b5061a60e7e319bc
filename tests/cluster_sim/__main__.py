"""Run the simulator by hand, with PYTHONPATH=src:tests.

python -m cluster_sim explore [--seeds 2000] [--first 0] [--brokers 3]
python -m cluster_sim mutants [--seeds 20000] [--mutant NAME]     which seed catches which mutant
python -m cluster_sim scripts                                     the told histories
python -m cluster_sim replay SEED [--mutant NAME] [--brokers 3]   shrink a history, and show it
"""

from __future__ import annotations

import argparse
import sys
import time

from cluster_sim.histories import History, begin, heal, run
from cluster_sim.mutants import MUTANTS, changed
from cluster_sim.scripts import SCRIPTS
from cluster_sim.shrink import shrink
from cluster_sim.steps import Step, Steps
from cluster_sim.world import World


def history_of(seed: int, mutant: str, brokers: int) -> History:
    """Run the history of a seed as the tests of a mutant run it."""
    focus = MUTANTS[mutant].focus if mutant else ()
    return run(seed, brokers or (MUTANTS[mutant].brokers if mutant else 3), focus)


def explore(args: argparse.Namespace) -> int:
    """Run many seeds with the rules as they are, or with a mutant."""
    begun, bad, steps = time.perf_counter(), 0, 0
    with changed(args.mutant):
        for seed in range(args.first, args.first + args.seeds):
            history = history_of(seed, args.mutant, args.brokers)
            steps += len(history.steps)
            if history.violation:
                bad += 1
                print(f"seed {seed}: {history.violation}", flush=True)
    seconds = time.perf_counter() - begun
    print(f"{args.seeds} seeds, {steps} steps, {bad} violations, {seconds:.0f} s")
    return min(bad, 1)


def mutants(args: argparse.Namespace) -> int:
    """Search the first seed that catches each mutant."""
    missed = 0
    for name in [args.mutant] if args.mutant else MUTANTS:
        begun, found = time.perf_counter(), "NOT CAUGHT by random search"
        with changed(name):
            for seed in range(args.first, args.first + args.seeds):
                history = history_of(seed, name, args.brokers)
                if history.violation:
                    found = f"seed {seed}, step {len(history.steps)}: {history.violation}"
                    break
            else:
                missed += 1
        seconds = time.perf_counter() - begun
        print(f"{name:21} {found[:120]} ({seconds:.0f} s)", flush=True)
    return min(missed, 1)


def scripts(args: argparse.Namespace) -> int:
    """Tell each script with the rules as they are, and with its mutants."""
    bad = 0
    for script in SCRIPTS:
        for mutant in ("", *script.catches):
            with changed(mutant):
                violation = script.run()
            bad += bool(violation) != bool(mutant)
            print(f"{script.tell.__name__:28} {mutant or 'the rules':21} {violation or 'holds'}")
    return min(bad, 1)


def replay(args: argparse.Namespace) -> int:
    """Shrink the history of a seed and show what is left of it."""
    with changed(args.mutant):
        history = history_of(args.seed, args.mutant, args.brokers)
        if not history.violation:
            print("nothing is violated")
            return 0
        steps = shrink(history)
        print(history.settings.cluster)
        show(history, steps)
    print(f"{len(history.steps)} steps violate, and {len(steps)} of them do too")
    return 1


def show(history: History, steps: list[Step]) -> None:
    """Print each step, the message that it is about, and the state in the store after it."""
    world = begin(history.settings)
    taker = Steps(world, history.settings.faults)
    try:
        for step in steps:
            is_message = step[0] in ("deliver", "double", "lose") and world.net
            print(*step, world.net[step[1] % len(world.net)] if is_message else "")
            taker.take(step)
            print("    " + summary(world))
        heal(taker)
    except Exception as error:  # noqa: BLE001 - the violation, or whatever the mutant breaks
        print(repr(error))


def summary(world: World) -> str:
    """Give the states in the store, and the replicas of each broker, in one line."""
    told = []
    for part in world.parts:
        state = part.state
        told.append(
            f"v{part.version} leader {state.leader} e{state.leader_epoch} isr {dict(state.isr)} "
            f"elr {dict(state.elr)} suspects {sorted(state.suspects)}"
        )
        for broker in world.brokers.values():
            replica, stored = broker.replicas[part.number], broker.stored[part.number]
            role = replica.role.value if broker.is_up else "down"
            told.append(f"{broker.id}: {role} hw {replica.high_watermark} {stored.records}")
    return "; ".join(told)


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m cluster_sim")
    commands = {one.__name__: one for one in (explore, mutants, scripts, replay)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--mutant", choices=["", *MUTANTS], default="")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--brokers", type=int, default=0)
    args = parser.parse_args()
    return commands[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
