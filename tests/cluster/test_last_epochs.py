"""Test that a znode without room for the next number affects only its partition."""

from __future__ import annotations

import json

import pytest

from cluster import znodes
from cluster.state import LEADER_EPOCH_MAX
from support.members import Members
from support.places import fast_directory
from support.replica_nodes import wait_until

EPOCH_MAX = 2**31 - 1


def depose(members: Members) -> None:
    """Begin a new reign, which reads everything."""
    members.admin.delete(znodes.CONTROLLER)


@pytest.mark.parametrize("epoch", [EPOCH_MAX, LEADER_EPOCH_MAX])
def test_regression_a_last_leader_epoch_stops_no_other_partition(epoch: int) -> None:
    """Other partitions get a new leader when theirs dies, and topics can be created."""
    with fast_directory() as root, Members(root) as members:
        for name in ("bad", "good"):
            members.create(name, {0: [1, 2, 3]})
            members.produce(name, b"first")
        path = znodes.state_path("bad", 0)
        state = {**json.loads(members.admin.get(path).data), "leader_epoch": epoch}
        members.admin.set(path, json.dumps(state).encode())
        depose(members)
        wait_until(lambda: members.controller() != -1)
        members.members[1].kill()
        members.wait_for_leader("good", other_than=1)
        members.produce("good", b"second")
        members.create("later", {0: [2, 3]})
        members.produce("later", b"first")
        assert json.loads(members.admin.get(path).data)["leader_epoch"] == epoch


def test_regression_a_last_controller_epoch_is_named_until_it_is_repaired(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Until the repair, there is no controller, but leaders serve."""
    with fast_directory() as root, Members(root) as members:
        members.create("orders", {0: [1, 2, 3]})
        members.produce("orders", b"first")
        epoch = members.admin.get(znodes.CONTROLLER_EPOCH).data
        members.admin.set(znodes.CONTROLLER_EPOCH, b"%d" % EPOCH_MAX)
        depose(members)
        wait_until(lambda: f"no epoch is left after {EPOCH_MAX}" in caplog.text)
        assert members.controller() == -1
        members.produce("orders", b"second")
        members.admin.set(znodes.CONTROLLER_EPOCH, epoch)
        wait_until(lambda: members.controller() != -1)
        members.create("later", {0: [2, 3]})
        members.produce("later", b"first")
