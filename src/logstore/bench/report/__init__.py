"""Make tables, plots and one page of what was measured: Spark reads the trace and the JSON.

tables    Spark: the trace joined with pytest-benchmark's JSON, one row a measurement
sheets    the questions, and which rows answer each
plots     matplotlib: one plot a question, as PNG and SVG
claims    what KIP-112 says of JBOD and RAID, beside what was measured
page      one HTML file that holds it all
"""

from __future__ import annotations

from importlib.util import find_spec

NEEDED = ("matplotlib", "pandas", "pyarrow", "pyspark")


def check_extra() -> None:
    """Make sure that the page can be made, before anything is measured for it.

    Raises:
        ImportError: the extra `bench` is not installed.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"the page needs {', '.join(missing)}: pip install 'logstore[bench]'")
