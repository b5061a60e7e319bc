"""Write the golden logs that a compaction left: once, ever.

Each is a segment's batches as they were cleaned, with the records that a reader has to find.

    PYTHONPATH=src:tests python tests/format/write_cleaned_golden.py    writes what is missing
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from support.compacting import (
    DAY,
    NOW,
    TRANSACTIONAL,
    aborted_by,
    batch_of,
    clean,
    marker,
    rows_of,
    split,
)

GOLDEN = Path(__file__).with_name("cleaned_golden")


def log_of(layout: str) -> list[bytes]:
    """Make a log with all that compaction treats in a way of its own."""
    log = [
        batch_of(layout, 0, [(b"old", b"%d" % n, NOW + n) for n in range(5)], epoch=1),
        batch_of(layout, 5, [(b"old", b"again", NOW)], producer=(77, 0, 3), epoch=1),
        batch_of(layout, 6, [(b"old", b"new", NOW + 9), (b"gone", None, NOW + 8), (None, b"", 1)]),
        batch_of(layout, 9, [(b"k%d" % (n % 40), b"v" * n, NOW - n) for n in range(60)], codec=4),
        batch_of(layout, 69, [(b"a key of more than fourteen bytes", b"", NOW)], epoch=2),
    ]
    if layout == "kafka":
        log[-1] = batch_of(
            layout, 69, [(b"aborted", b"", NOW)], producer=(5, 0, 0), attributes=TRANSACTIONAL
        )
        log += [marker(70, 5, commit=False), marker(71, 6, commit=True)]
    return log


def cleaned(layout: str) -> bytes:
    """Clean that log."""
    log = log_of(layout)
    kept = frozenset({5})
    return b"".join(
        clean(log, now_ms=NOW + DAY, kept_empty=kept, is_aborted=aborted_by(log)).batches
    )


def expected(data: bytes) -> list[list[Any]]:
    """Give the records as JSON can hold them."""
    return [[*row[:2], hex_of(row.key), hex_of(row.value)] for row in rows_of(split(data))]


def hex_of(cell: bytes | None) -> str | None:
    return None if cell is None else cell.hex()


def main() -> int:
    """Write what is missing; return 1 if everything is there."""
    GOLDEN.mkdir(exist_ok=True)
    written = 0
    for layout in ("columnar", "kafka"):
        path = GOLDEN / f"{layout}.log"
        if path.exists():
            print(f"{path} is there already", file=sys.stderr)
            continue
        data = cleaned(layout)
        path.write_bytes(data)
        path.with_suffix(".json").write_text(json.dumps(expected(data)) + "\n")
        written += 1
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
