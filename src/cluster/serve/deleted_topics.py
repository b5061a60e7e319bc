"""Find deleted topics in the metadata, so that their committed offsets are deleted."""

from __future__ import annotations

from collections.abc import Callable

from cluster.view import EMPTY, ClusterView


class DeletedTopics:
    """Compare each view with the previous view.

    Args:
        forget: called with the name and the id of each deleted topic. This function must return at
            once.
    """

    def __init__(self, forget: Callable[[str, bytes], object]) -> None:
        self._forget, self._ids = forget, EMPTY.ids

    def heard(self, view: ClusterView) -> None:
        """Handle the next view. If no topic has changed, both views share the same `ids`."""
        before, self._ids = self._ids, view.ids
        if before is view.ids:
            return
        for topic_id, name in before.items():
            if topic_id not in view.ids:
                self._forget(name, topic_id)
