"""A command that serves prints each warning each time, with the time and the logger."""

from __future__ import annotations

import logging
import re

import pytest

from logstore.cli import warnings_once
from logstore.cli.log_lines import log_lines

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_regression_a_repeated_warning_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker printed only the first failure of a disk; later it was silent."""
    with warnings_once.each_once():
        logging.getLogger("logstore").warning("disk %s hangs", "a")
        with log_lines():
            for _ in range(2):
                logging.getLogger("logstore").warning("disk %s hangs", "a")
            logging.getLogger("cluster").error("a replica stopped")
            logging.getLogger("cluster").info("not shown")
        logging.getLogger("logstore").warning("disk b hangs")
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert (first, last) == ("disk a hangs", "disk b hangs")
    assert [re.sub(f"^{TIME} ", "", line) for line in lines] == [
        "WARNING logstore: disk a hangs",
        "WARNING logstore: disk a hangs",
        "ERROR cluster: a replica stopped",
    ]
    assert all(re.match(TIME, line) for line in lines)
