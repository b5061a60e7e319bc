"""One Spark session for all tests here: a JVM takes seconds to start."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import logstore.spark
from logstore import LogStore
from support.spark_data import fill, rows_of, write_parquet

COMPILE_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CHANGED = (
    "JAVA_HOME", "LOGSTORE_JAVA", "LOGSTORE_PYTHON", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON",
    "PYTHONPATH", "SPARK_LOCAL_IP", "PYTHONWARNINGS", "SPARK_HOME", "SPARK_ENV_LOADED",
)  # fmt: skip


# Before each task Spark has Python forget what it knows of directories, which for its own archive
# means to read thousands of names anew: half of what a small task takes. Behind each request its
# planning processes look through all objects for garbage, while the query runs.
LIGHTER = """
import gc, zipimport
gc.collect = lambda generation=2: 0
zipimport.zipimporter.invalidate_caches = lambda self: None
"""


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start Spark on the bundled Java, with the source registered, and end its JVM afterwards."""
    before = {name: os.environ.get(name) for name in CHANGED}
    scratch = tmp_path_factory.mktemp("spark")
    (scratch / "site").mkdir()
    (scratch / "site" / "sitecustomize.py").write_text(LIGHTER)
    roots = [str(scratch / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(roots)
    session = logstore.spark.session(
        "local[2]",
        java="bundled",
        conf={
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": COMPILE_FAST,
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "1",
            "spark.default.parallelism": "2",
            # Hundreds of small queries: what compiles and adapts them costs more than it saves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        },
    )
    logstore.spark.register(session)
    yield session
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="package")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a closed store in `a` and `b`, and the same records in `records.parquet`."""
    root = tmp_path_factory.mktemp("example")
    with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
        fill(store, random.Random(1))
        write_parquet(rows_of(store), root / "records.parquet")
    return root


@pytest.fixture
def root(example: Path, tmp_path: Path) -> Path:
    """Give a test its own copy of the example, to do with as it likes."""
    shutil.copytree(example, tmp_path / "store", dirs_exist_ok=True)
    return tmp_path / "store"


@pytest.fixture
def load(spark: Any) -> Callable[..., Any]:
    """Give a function that loads a store's records with options."""

    def load(root: Path, **options: Any) -> Any:
        if not {"subscribe", "subscribePattern", "assign"} & options.keys():
            options["subscribePattern"] = ".*"
        reader = spark.read.format("logstore").option("logDirs", f"{root / 'a'},{root / 'b'}")
        return reader.options(**options).load()

    return load


@pytest.fixture
def runtime() -> Iterator[str]:
    """Give a directory for sockets whose path is short enough for an address."""
    with TemporaryDirectory(prefix="ls-") as path:
        yield path


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reader hand over a batch as soon as it has one."""
    from logstore.spark.read import columns

    monkeypatch.setattr(columns, "ROWS_MIN", 1)
