"""The comparison with Kafka is run by hand; what it does without Java, and its reading, is here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.kafka import java
from benchmarks.kafka.broker import Watch

REPOSITORY = Path(__file__).resolve().parents[2]


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    """Exit code 2 and one line; nothing is left behind."""
    paths = [str(REPOSITORY / "src"), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka", "--bench-dir", str(tmp_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "java is not installed" in done.stderr
    assert "apt-get install" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is named, and the one that is needed."""
    said = SimpleNamespace(stderr='openjdk version "11.0.2" 2019-01-15\n')
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr("subprocess.run", lambda *words, **options: said)
    with pytest.raises(java.MissingError, match=r"too old .*11\.0\.2.*Java 17"):
        java.check_tools()


def test_a_move_is_read_from_the_names_of_directories(tmp_path: Path) -> None:
    """Not begun, under way under the name of a future replica, in both places, over."""
    source, target = tmp_path / "a", tmp_path / "b"
    broker: Any = SimpleNamespace(log_dirs=[str(source), str(target)])
    watch = Watch(broker, "moved", 1)
    (source / "moved-0").mkdir(parents=True)
    future = target / "moved-0.0123-future"
    future.mkdir(parents=True)
    (future / "00000000000000000000.log").write_bytes(bytes(100))
    (future / "00000000000000000000.index").write_bytes(bytes(7))
    assert (watch.copied_bytes(), watch.is_over) == (100, False)
    watch.wait_begun()
    future.rename(target / "moved-0")
    assert not watch.is_over
    (source / "moved-0").rename(source / "moved-0.0123-delete")
    watch.wait_over()
    assert (watch.copied_bytes(), watch.is_over) == (100, True)
