"""Hold the folders of the source to their rules: a sentence each, and no crowd."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES_MAX = 16
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_folder_says_what_it_is_and_is_not_crowded(folder: Path) -> None:
    """A newcomer finds the room for a change by its sentence, and the module in one look."""
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    modules = [path.name for path in folder.glob("*.py") if not path.stem.startswith("__")]
    assert len(modules) <= MODULES_MAX, f"{len(modules)} modules: give some a folder of their own"
