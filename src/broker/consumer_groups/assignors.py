"""List the assignors of the broker by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.consumer_groups.exchange import Places
from broker.consumer_groups.range_assignor import assign_ranges
from broker.consumer_groups.uniform import Sizes, Subscriber, uniform

Assignor = Callable[[Mapping[str, Subscriber], Sizes], dict[str, Places]]
ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": assign_ranges}
