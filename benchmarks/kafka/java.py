"""Fetch Apache Kafka with Maven once, and run its classes; needs Java 17 or later, and Maven.

The benchmarks use this module, and so do the tests with a real broker
(`tests/support/kafka_peer`).
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
    """Report that this machine lacks something that the comparison needs."""


def check_tools() -> None:
    """Check that Java and Maven are installed.

    Raises:
        MissingError: a tool is missing or too old. The message says how to install it.
    """
    advice = f"Java {JAVA_MIN} or later and Maven: apt-get install openjdk-17-jdk-headless maven"
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise MissingError(f"{tool} is not installed; the comparison needs {advice}")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise MissingError(
            f"this Java is too old ({said.splitlines()[0]}); the comparison needs {advice}"
        )


def fetch(name: str = VERSION, artifacts: Sequence[tuple[str, str, str]] = ARTIFACTS) -> Path:
    """Return the directory with Kafka's jars in `libs`; the first call fetches the jars.

    Args:
        name: the name of the directory; each list of artifacts has a directory of its own.
        artifacts: group, name and version of each artifact to fetch; what it needs is fetched, too.

    Raises:
        MissingError: Java or Maven is missing or too old.
    """
    check_tools()
    home = CACHE / name
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(DEPENDENCY.format(*artifact) for artifact in artifacts)
        (home / "pom.xml").write_text(POM.format(dependencies))
        do(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], home)
        (home / "complete").touch()
    return home


def fetch_engine() -> Path:
    """Compile the driver of Kafka's engine into the directory of `fetch`, and return its path."""
    home = fetch()
    do(["javac", "-cp", f"{home}/libs/*", "-d", str(home), str(ENGINE_SOURCE)], home)
    return home


def do(words: list[str], directory: Path) -> str:
    """Run a program to its end, and return its output."""
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def command(
    home: Path, name: str, *words: str, heap: str = "256m", flags: Sequence[str] = (QUIET,)
) -> list[str]:
    """Build the command line that runs a class."""
    return ["java", f"-Xmx{heap}", *flags, "-cp", f"{home}:{home}/libs/*", name, *words]


def engine(home: Path, *words: str) -> list[float]:
    """Run Kafka's engine in a new JVM, and return the numbers in the last line of its output."""
    lines = do(command(home, "KafkaEngine", *words, heap="1g"), home).split("\n")
    return [float(word) for word in lines[-2].split()]
