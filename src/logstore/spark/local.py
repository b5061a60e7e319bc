"""Start a fast and quiet Spark session on this machine, without a network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from logstore.spark.java import choose_java
from logstore.spark.python import choose_python
from logstore.spark.sockets import unix_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_ROOT = os.path.dirname(os.path.dirname(HERE))
MISSING = "the Spark source needs pyspark: pip install 'logstore[spark]'"
PANDAS_WARNING = "ignore:PySpark does not yet fully support pandas:FutureWarning"

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
}
# Rows are short-lived objects.
# With G1, the JVM's default collector, reads take an eighth longer.
COLLECTOR = "-XX:+UseParallelGC"
JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(
    master: str = "local[*]",
    *,
    app_name: str = "logstore",
    java: str = "auto",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session, or return the running session.

    The system needs no Java, because the extra `spark` installs Java. This function sets JAVA_HOME,
    PYSPARK_PYTHON and PYTHONPATH in this process, and Spark passes these variables on to its own
    processes. In this session, Spark shows times in UTC.

    Args:
        master: any Spark master; the default uses every core of this machine.
        java: "auto" uses the system's Java if its version is 17 or later, else the bundled Java.
            "system" uses only the system's Java, and "bundled" only the bundled Java.
        conf: Spark's settings. These settings override the settings that this function makes.

    Raises:
        ImportError: pyspark is not installed.
        RuntimeError: the chosen Java is not installed.
    """
    builder = _import_session().builder
    active = _import_session().getActiveSession()
    is_local = master.startswith("local")
    sockets = unix_sockets() if is_local else {}
    if active is None:
        prepare_environment(java, is_quiet=bool(sockets))
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = {**QUIET, **LOOPBACK, **sockets} if is_local else QUIET
    settings = {**ours, **(conf or {})}
    options = "spark.driver.extraJavaOptions"
    logging = f"-Dlog4j2.configurationFile=file:{os.path.join(HERE, 'log4j2.properties')}"
    wanted = settings.get(options, "")
    collector = _collector(wanted) if is_local else ""
    settings[options] = " ".join(filter(None, (logging, collector, wanted)))
    builder = builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _collector(wanted: str) -> str:
    """Return the JVM option for our garbage collector, or "" if the user chose a collector.

    The JVM refuses to start if two collectors are chosen.
    """
    said = " ".join((wanted, *(os.environ.get(name, "") for name in JAVA_OPTIONS)))
    return "" if "GC" in said else COLLECTOR


def prepare_environment(java: str = "auto", *, is_quiet: bool = False) -> None:
    """Set the variables that Spark's own processes inherit: Java, Python, and package paths."""
    choose_java(os.environ, java)
    choose_python(os.environ, is_quiet=is_quiet)
    # Without this filter, each Python process of Spark warns about the version of pandas.
    filters = [os.environ.get("PYTHONWARNINGS", ""), PANDAS_WARNING]
    if PANDAS_WARNING not in filters[0]:
        os.environ["PYTHONWARNINGS"] = ",".join(filter(None, filters))
    warnings.filterwarnings("ignore", PANDAS_WARNING.split(":")[1], FutureWarning)
    roots = [root for root in os.environ.get("PYTHONPATH", "").split(os.pathsep) if root]
    if os.path.basename(PACKAGE_ROOT) != "site-packages" and PACKAGE_ROOT not in roots:
        os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE_ROOT, *roots])


def _import_session() -> type[SparkSession]:
    try:
        with warnings.catch_warnings():
            # The import warns about versions of pandas. Pandas is not used here.
            warnings.simplefilter("ignore", FutureWarning)
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(MISSING, name="pyspark") from error
    return SparkSession
