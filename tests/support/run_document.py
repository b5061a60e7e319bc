"""Run the Python blocks of a Markdown document, in order, in one namespace, in this directory.

A block that begins with `# name.py` is saved under that name instead. What `print(...)  # text`
prints is compared with its comment. Tracebacks name the line of the document.

    python run_document.py README.md
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)
FILE_NAME = re.compile(r"# (\w+\.py)\n")


def python_blocks(text: str) -> list[tuple[int, str]]:
    """Give each Python block with the number of lines that stand before it."""
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in BLOCK.finditer(text)]


def main(path: str) -> int:
    """Run a document; give how many blocks ran."""
    text = Path(path).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "document"}
    blocks = python_blocks(text)
    for lines_before, source in blocks:
        name = FILE_NAME.match(source)
        if name:
            Path(name[1]).write_text(source, encoding="utf-8")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * lines_before + source, path, "exec"), namespace)
        expected = PRINTED.findall(source)
        found = printed.getvalue().splitlines()
        if expected and found != expected:
            raise SystemExit(f"{path}:{lines_before + 1}: printed {found}, says {expected}")
    return len(blocks)


if __name__ == "__main__":
    print(main(sys.argv[1]))
