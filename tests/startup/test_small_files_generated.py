"""Whatever stands in the place of a small file: no record is deleted, and it is reported.

A sample of the cases; `make small-files` plays all of them (LOGSTORE_SMALL_FILES=all).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from startup import small_files

SAMPLED = 80
PARTS = 8
IS_WHOLE = os.environ.get("LOGSTORE_SMALL_FILES") == "all"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the stores once."""
    path = tmp_path_factory.mktemp("small-files")
    small_files.make(path)
    return path


@pytest.mark.parametrize("part", range(PARTS if IS_WHOLE else 1))
def test_no_small_file_is_believed_alone(root: Path, tmp_path: Path, part: int) -> None:
    """The store opens, a view describes it, and at worst one replica or log dir is not served."""
    found = list(small_files.cases(root))
    kinds = Counter(case.path for case in found)
    assert len(kinds) == len(small_files.OF_A_DIR) + len(small_files.OF_A_LOG)
    chosen = found[part::PARTS] if IS_WHOLE else random.Random(23).sample(found, SAMPLED)
    wrong = []
    for case in chosen:
        try:
            small_files.check(root, case, tmp_path / "place")
        except Exception as error:  # noqa: BLE001 - all of them are to be seen
            wrong.append(f"{case[:3]}: {type(error).__name__}: {str(error)[:300]}")
    print(f"{len(chosen)} of {len(found)} cases")
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n".join(wrong[:60])
