"""Hold the groups to Kafka's protocol, for any order of requests, silences, restarts and time.

The ledger (`support.group_world`) knows what each client was told. It has no copy of the code.
"""

from __future__ import annotations

from hypothesis import settings

from support.group_machine import GroupMachine

TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=200, stateful_step_count=60)
