"""A user with a broker's disks follows docs/KAFKA_DISK.md to the letter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.kafka_golden import given, log_dirs

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/KAFKA_DISK.md").read_text()
CODE = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
HEAD = 'set -e\nlogstore() { "$PYTHON" -m logstore.cli "$@"; }\npython() { "$PYTHON" "$@"; }\n'


def disks(place: Path) -> list[Path]:
    """Lay the golden disks out; the topic with transactions is called as in the page."""
    dirs = log_dirs("stopped", place)
    (dirs[0] / "transactions-0").rename(dirs[0] / "orders-0")
    for path in dirs[0].glob("*-checkpoint"):
        path.write_text(path.read_text().replace("transactions 0", "orders 0"))
    return dirs


def run(place: Path, text: str, dirs: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run commands of the page in a shell, on these disks."""
    for number, path in enumerate(dirs, 1):
        text = text.replace(f"/mnt/disk{number}/kafka", str(path))
    text = text.replace("/disk1/logs", str(place / "ours"))
    text = text.replace("/tmp/handed-back", str(place / "handed-back"))
    text = text.replace("2026-01-01", "2023-01-01")  # the golden records are of 2023
    environment = {**os.environ, "PYTHON": sys.executable, "MPLBACKEND": "Agg"}
    paths = [str(REPOSITORY / "src"), *(path for path in sys.path if path)]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.run(
        ["bash", "-c", HEAD + text], cwd=place, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_five_commands_lead_from_a_disk_to_a_plot(tmp_path: Path) -> None:
    """As they stand in the page, they list, verify, print, make a table and draw."""
    dirs = disks(tmp_path)
    steps = PAGE[: PAGE.index("## What is done")]
    done = run(tmp_path, "".join(CODE.findall(steps)), dirs)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout and "partitions verified, no problems" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    expected = given("stopped")["transactions", 0].uncommitted  # type: ignore[index]
    assert [row["offset"] for row in rows] == [row[0] for row in expected]
    assert (tmp_path / "orders.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(300)
def test_it_is_kept_and_handed_back_as_the_page_says(tmp_path: Path) -> None:
    """The two last commands give a directory with the same records."""
    dirs = disks(tmp_path)
    (last,) = CODE.findall(PAGE[PAGE.index("## Keep it") :])
    done = run(tmp_path, last, dirs)
    assert done.returncode == 0, done.stderr
    suffixes = {path.suffix for path in (tmp_path / "handed-back" / "orders-0").iterdir()}
    assert suffixes == {".log", ".snapshot"}
    assert "offsets 0 to 14" in done.stdout
