"""Give each node a wall clock of its own, which jumps while its processes run.

`shifted_clock.c` says how: a library that is preloaded adds an offset to the wall clock, and reads
this offset from a file that it has mapped. Monotonic clocks, and the times of files, are real.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "shifted_clock.c"
VARIABLE = "LOGSTORE_CLOCK"
PRELOAD = "LD_PRELOAD"
FIELDS = struct.Struct("=qqq")  # offset_ns, seen_ns, looks
assert FIELDS.size == 24


def why_not() -> str | None:
    """Say why no clock can be shifted here, or None when it can."""
    return None if shutil.which("cc") else "cc is not installed"


def compile_library(place: Path) -> Path:
    """Compile the library into a directory."""
    library = place / "shifted_clock.so"
    words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*words, str(SOURCE), "-ldl", "-lpthread"], check=True, stdin=subprocess.DEVNULL)
    return library


class Clock:
    """The wall clock of one node; its processes must have been started with `environment`."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path, self._library = path, library
        if not path.exists():
            path.write_bytes(bytes(FIELDS.size))

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to have this clock."""
        return {PRELOAD: str(self._library), VARIABLE: str(self.path)}

    @property
    def offset_seconds(self) -> float:
        """How far this clock is ahead of the real one."""
        return self._read()[0] / 1e9

    @property
    def is_seen(self) -> bool:
        """Whether a process has looked at this clock since its last step."""
        offset_ns, seen_ns, _ = self._read()
        return offset_ns == seen_ns

    @property
    def looks(self) -> int:
        """How often processes looked at this clock."""
        return self._read()[2]

    def _read(self) -> tuple[int, int, int]:
        offset_ns, seen_ns, looks = FIELDS.unpack(self.path.read_bytes())
        return offset_ns, seen_ns, looks

    def set(self, offset_seconds: float) -> None:
        """Let the clock jump, so that it is this far ahead of the real one."""
        with self.path.open("r+b", buffering=0) as file:  # a single write of the first field
            file.write(struct.pack("=q", round(offset_seconds * 1e9)))


def own_clock() -> Clock | None:
    """Give the clock of this process, if it was started with one."""
    path, library = os.environ.get(VARIABLE), os.environ.get(PRELOAD)
    return Clock(Path(path), Path(library)) if path and library else None
