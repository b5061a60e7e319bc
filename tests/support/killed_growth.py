"""Run `logstore cluster grow` in a process that kills itself at a write of its growth.

python -m support.killed_growth NUMBER WORDS...    WORDS are those of the program `logstore`
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from cluster.process import growing, grown_documents
from logstore.cli.app import app


class Dying:
    """A session that kills the process right after its write of a number."""

    def __init__(self, session: Any, left: list[int]) -> None:
        self._session, self._left = session, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        return self._writing(found) if name in ("create", "set", "multi") else found

    def _writing(self, write: Any) -> Any:
        def written(*arguments: Any) -> Any:
            answer = write(*arguments)
            self._left[0] -= 1
            if not self._left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return written


def main() -> None:
    """Run the command; without the kill, its exit code is that of the process."""
    left = [int(sys.argv[1])]
    for module, name in ((grown_documents, "take_documents"), (growing, "adopt")):
        original = getattr(module, name)
        setattr(module, name, _dying(original, left))
    app(sys.argv[2:])


def _dying(original: Any, left: list[int]) -> Any:
    def run(session: Any, *arguments: Any) -> Any:
        return original(Dying(session, left), *arguments)

    return run


if __name__ == "__main__":
    main()
