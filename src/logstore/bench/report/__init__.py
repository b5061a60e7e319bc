"""Make tables, plots and one page from the results: Spark reads the trace and the JSON.

tables    Spark: the trace joined with pytest-benchmark's JSON, one row per measurement
sheets    the questions, and the rows that answer each question
plots     matplotlib: one plot per question, as PNG and SVG
claims    KIP-112's claims about JBOD and RAID, beside the measured figures
page      one HTML file with all of these
"""

from __future__ import annotations

from importlib.util import find_spec

NEEDED = ("matplotlib", "pandas", "pyarrow", "pyspark")


def check_extra() -> None:
    """Check, before the measurement begins, that the page can be made.

    Raises:
        ImportError: the extra `bench` is not installed.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"the page needs {', '.join(missing)}: pip install 'logstore[bench]'")
