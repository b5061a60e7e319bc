"""Fetch Apache Kafka with Maven, once, and run its classes; needs Java 17 or later, and Maven.

For the benchmarks, and for the tests that have a broker as a peer (`tests/support/kafka_peer`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

VERSION = "4.1.0"
ARTIFACTS = [
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
]
JAVA_MIN = 17
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logstore-bench-kafka"
ENGINE_SOURCE = Path(__file__).with_name("KafkaEngine.java")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""


class MissingError(Exception):
    """Something that the comparison needs is not on this machine."""


def check_tools() -> None:
    """Make sure of Java and Maven.

    Raises:
        MissingError: one is missing or too old; it says how to get it.
    """
    advice = f"Java {JAVA_MIN} or later and Maven: apt-get install openjdk-17-jdk-headless maven"
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise MissingError(f"{tool} is not there; the comparison needs {advice}")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise MissingError(f"this Java is too old ({said.splitlines()[0]}); it needs {advice}")


def fetch() -> Path:
    """Give the directory with Kafka's jars in `libs`, fetched at the first use.

    Raises:
        MissingError: a tool for that is not there.
    """
    check_tools()
    home = CACHE / VERSION
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(DEPENDENCY.format(*artifact) for artifact in ARTIFACTS)
        (home / "pom.xml").write_text(POM.format(dependencies))
        do(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], home)
        (home / "complete").touch()
    return home


def fetch_engine() -> Path:
    """Give the same directory, with the driver of Kafka's engine compiled in it."""
    home = fetch()
    do(["javac", "-cp", f"{home}/libs/*", "-d", str(home), str(ENGINE_SOURCE)], home)
    return home


def do(words: list[str], directory: Path) -> str:
    """Run a program to its end, and give what it printed."""
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def command(
    home: Path, name: str, *words: str, heap: str = "256m", flags: Sequence[str] = (QUIET,)
) -> list[str]:
    """Word the call of a class."""
    return ["java", f"-Xmx{heap}", *flags, "-cp", f"{home}:{home}/libs/*", name, *words]


def engine(home: Path, *words: str) -> list[float]:
    """Run Kafka's engine in a JVM of its own, and give the numbers of its last line."""
    lines = do(command(home, "KafkaEngine", *words, heap="1g"), home).split("\n")
    return [float(word) for word in lines[-2].split()]
