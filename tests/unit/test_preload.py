"""An open store imports no further modules of this library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from support.places import environment

SOURCE = Path(__file__).resolve().parents[2] / "src"
# What needs an extra, or opens a store that is none of this process's own.
ELSEWHERE = {
    "logstore.format.kafka.markers",
    "logstore.format.kafka.recompress",
    "logstore.format.kafka.snapshots",
    "logstore.arrow",
    "logstore.store.view",
    "logstore.store.kafka.broker_view",
}


def modules_imported_later() -> set[str]:
    """Name the modules that functions of the engine import."""
    found: set[str] = set()
    for room in ("disk", "log", "store"):
        for path in sorted((SOURCE / "logstore" / room).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef):
                    for node in ast.walk(function):
                        if isinstance(node, ast.ImportFrom) and node.module:
                            found |= {f"{node.module}.{one.name}" for one in node.names}
                            found.add(node.module)
                        elif isinstance(node, ast.Import):
                            found |= {one.name for one in node.names}
    return {
        name
        for name in found - ELSEWHERE
        if name.startswith("logstore.")
        and (SOURCE / name.replace(".", "/")).with_suffix(".py").exists()
    }


def test_regression_no_import_waits_for_a_descriptor(tmp_path: Path) -> None:
    """A flush or a close without descriptors failed at an import, with Python's own error."""
    later = modules_imported_later()
    assert len(later) > 20
    program = (
        "import sys; from logstore import LogStore\n"
        f"with LogStore.open({str(tmp_path / 'logs')!r}):\n"
        f"    print(*sorted({sorted(later)!r} - sys.modules.keys()))".replace("[", "{").replace(
            "]", "}"
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == []
