"""Hold documents and sources to plain English: no phrase that has to be read twice."""

from __future__ import annotations

import re
from pathlib import Path

from support.source_tree import REPOSITORY, for_each, name_of

# Places whose prose is plain, and phrases that had to be read twice there. A thread or a file is
# "it"; a thing exists, continues, comes after another; a message reports.
PLAIN_PLACES = ["README.md", "CHANGELOG.md", "docs", "src", "benchmarks"]
STILTED = re.compile(
    r"\b(whoever|who (?:is|was) just|who (?:comes|reads on|lets go|waits|holds|gets)|so long does"
    r"|stands? in its place|(?:that|what) stands|behind that|(?:is|are|be|been) told|cannot tell"
    r"|so many|goes? on with|of before|of one mind|held? against|put to the same|lets? in"
    r"|(?:is|are|was) looked at|all the same|so it is with|gone on with|taken for whole)\b",
    re.IGNORECASE,
)


def prose_files() -> list[Path]:
    """List the documents and Python files in the plain places."""
    places = [REPOSITORY / place for place in PLAIN_PLACES]
    inside = [
        path for place in places for path in place.rglob("*") if path.suffix in (".md", ".py")
    ]
    return sorted([*inside, *(place for place in places if place.is_file())])


@for_each(prose_files())
def test_prose_is_plain(path: Path) -> None:
    """No phrase is used whose sentence has to be read twice."""
    text = re.sub(r"\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
    found = [match.group() for match in STILTED.finditer(text)]
    assert not found, f"{name_of(path)}: say it in everyday words: {found}"
