"""Keep each decrease of the log end offset, so that readers notice the decrease later.

A reader keeps the last cut that it has seen. Each cut refers to the next cut, and a log refers to
its last cut. So Python frees a cut as soon as every reader has seen it.
"""

from __future__ import annotations


class Cut:
    """One decrease of the log end offset, to `offset`.

    Attributes:
        offset: records at or after this offset were dropped; if `is_sure` is False, they may still
            exist.
        is_sure: False if another process writes the log. In this case, the log's files from this
            offset on were replaced, perhaps by files with the same records.
        later: the next cut; None if there is no later cut. This field is set after the log's view
            is replaced. So a reader misses no cut if it first reads the last cut, and then reads
            the view.
    """

    __slots__ = ("is_sure", "later", "offset")

    def __init__(self, offset: int, *, is_sure: bool = True) -> None:
        self.offset = offset
        self.is_sure = is_sure
        self.later: Cut | None = None

    @property
    def last(self) -> Cut:
        """The last cut of the log, which is this cut if there is no later cut."""
        cut = self
        while cut.later is not None:
            cut = cut.later
        return cut
