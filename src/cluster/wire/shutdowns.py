"""Write ControlledShutdown (7) and its answer, and read them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ControlledShutdownRequest, ControlledShutdownResponse
from cluster.errors import BadRequestError
from cluster.requests import ControlledShutdown

API, VERSION = 7, 3

Place = tuple[str, int]  # topic name and partition


def encode_shutdown(asked: ControlledShutdown) -> Any:
    """Write a request that announces that a broker will stop."""
    return ControlledShutdownRequest(asked.broker, asked.broker_epoch)


def decode_shutdown(message: Any) -> ControlledShutdown:
    """Read which broker will stop.

    Raises:
        BadRequestError: the message names no broker, or no broker epoch.
    """
    if message.broker_id < 0 or message.broker_epoch < 0:
        raise BadRequestError(reason="a controlled shutdown names no broker, or no broker epoch")
    return ControlledShutdown(message.broker_id, message.broker_epoch)


def encode_remaining(code: ErrorCode, places: Iterable[Place]) -> Any:
    """Write the partitions for which the broker has to wait, or why the controller refuses."""
    Remaining = ControlledShutdownResponse.RemainingPartition  # noqa: N806 - a class
    return ControlledShutdownResponse(code, [Remaining(*place) for place in places])


def decode_remaining(message: Any) -> list[Place] | None:
    """Read the partitions for which the broker has to wait; None if the controller refuses."""
    if message.error_code != ErrorCode.NONE:
        return None
    return [(row.topic_name, row.partition_index) for row in message.remaining_partitions]
