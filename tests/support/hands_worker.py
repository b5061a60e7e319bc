"""Let log dirs change hands in children of this process, each of which may be killed on the way.

Reads a line of JSON for each child: the function, the log dirs, and at which change of a disk the
child is killed (0: never). Writes one: how many changes there were, and "done", "killed" or why it
failed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import hand_back
from broker.hands.take_over import take_over
from logstore import LogStoreError
from logstore.disk import files
from support.crashing import CHANGES


def kill_at(number: int) -> list[str]:
    """Kill this process just before its n-th change of a disk; give the list of changes made."""
    calls: list[str] = []
    for name in (*CHANGES, "link"):
        real = getattr(files, name)

        def call(*arguments: object, name: str = name, real: Any = real, **named: object) -> object:
            calls.append(name)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        setattr(files, name, call)
    return calls


def run(name: str, dirs: list[str], number: int) -> str:
    """Do it, and say how it went; this is the child."""
    calls = kill_at(number)
    try:
        if name == "take_over":
            take_over(dirs, KAFKA_LOG_CONFIG)
        else:
            hand_back(dirs)
    except (LogStoreError, OSError) as error:
        return json.dumps([len(calls), f"{type(error).__name__}: {error}"])
    return json.dumps([len(calls), "done"])


def main() -> None:
    """Fork a child for each line."""
    for line in sys.stdin:
        source, target = os.pipe()
        child = os.fork()
        if not child:
            os.write(target, run(*json.loads(line)).encode())
            os._exit(0)
        os.close(target)
        with os.fdopen(source) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        print(text or json.dumps([0, "killed"]), flush=True)


if __name__ == "__main__":
    main()
