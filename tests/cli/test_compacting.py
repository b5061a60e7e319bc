"""A partition is compacted from the command line, with an owner or without."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from logstore import LogConfig, LogStore
from support.command_line import Run, owner_of


@pytest.mark.parametrize("has_owner", [True, False])
def test_a_partition_is_compacted_by_whoever_has_the_store(
    run: Run, orders: list[str], has_owner: bool
) -> None:
    """What is left is printed; a partition that deletes is wrong usage."""
    with LogStore.open(orders) as store:
        config = LogConfig(segment_bytes=500, cleanup_policy="compact", min_cleanable_dirty_ratio=1)
        log = store.create("users", 0, config=config)
        for number in range(50):
            log.append(b"%d" % number, key=b"%d" % (number % 5))
        log.flush()
    with owner_of(orders) if has_owner else nullcontext():
        result = run("compact", "users", "0", "--format", "json")
        assert result.exit_code == 0, result.output
        facts = json.loads(result.stdout)
        assert facts["records_kept"] == 5 and facts["is_complete"]
        again = run("compact", "users", "0")
        assert again.exit_code == 0 and "compacted up to offset" in again.stdout
        wrong = run("compact", "orders", "0")
        assert wrong.exit_code == 2 and "cleanup_policy of orders-0 is 'delete'" in wrong.output
    with LogStore.open(orders, read_only=True) as view:
        assert {r.value for r in view.log("users", 0)} >= {b"%d" % n for n in range(45, 50)}
