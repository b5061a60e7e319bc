"""Answer DescribeLogDirs (35) and AlterReplicaLogDirs (34), KIP-113."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import AlterReplicaLogDirsResponse, DescribeLogDirsResponse
from logstore import LogStoreError, UnknownPartitionError
from logstore.names import validate_topic
from logstore.store.host import TooManyPreferencesError
from mover import ReplicaMover
from mover.errors import TargetUnfitError

UNKNOWN_LAG = -1

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


def answer_describe(call: Call) -> Answer:
    """Describe all log dirs, with all partitions or only the partitions that the client names."""
    asked = call.request.message()
    wanted = None
    if asked.topics is not None:
        wanted = {(one.topic, number) for one in asked.topics for number in one.partitions}
    results = []
    for log_dir in call.services.store.describe_dirs().log_dirs:
        if not log_dir.is_live:
            results.append(Result(ErrorCode.KAFKA_STORAGE_ERROR, log_dir.path))
            continue
        topics: dict[str, list[Any]] = {}
        for one in log_dir.partitions:
            if wanted is None or (one.topic, one.partition) in wanted:
                lag = _lag_of(call.services, one) if one.is_temporary else one.offset_lag
                row = Partition(one.partition, one.size, lag, one.is_temporary)
                topics.setdefault(one.topic, []).append(row)
        rows = [Topic(name, partitions) for name, partitions in topics.items()]
        results.append(
            Result(
                ErrorCode.NONE, log_dir.path, rows, log_dir.total_bytes, log_dir.usable_bytes,
                directory_id=log_dir.directory_id,
            )
        )  # fmt: skip
    return call.answer(DescribeLogDirsResponse(results=results))


def _lag_of(services: Services, copy: Any) -> int:
    """Estimate from the lag in bytes how many offsets a copy lacks; -1 if no move runs."""
    try:
        log = services.store.log(copy.topic, copy.partition)
        move = ReplicaMover.of(services.store).move_of(copy.topic, copy.partition)
    except LogStoreError:
        return UNKNOWN_LAG
    if move is None or move.state.is_end:
        return UNKNOWN_LAG
    return -(-move.lag_bytes * len(log) // max(log.size_bytes, 1))


def answer_alter(call: Call) -> Answer:
    """Begin moves between log dirs. For a replica that does not exist yet, store its log dir."""
    asked, store = call.request.message(), call.services.store
    codes: dict[tuple[str, int], ErrorCode] = {}
    known = set(store.log_dirs)
    for one in asked.dirs:
        keys = [(topic.name, number) for topic in one.topics for number in topic.partitions]
        codes.update(_begin(call, one.path, keys, is_known=one.path in known))
    topics: dict[str, list[Any]] = {}
    Row = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult  # noqa: N806 - a class
    for (name, number), code in codes.items():
        topics.setdefault(name, []).append(Row(number, code))
    rows = [
        AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(name, partitions)
        for name, partitions in topics.items()
    ]
    return call.answer(AlterReplicaLogDirsResponse(results=rows))


def _begin(
    call: Call, path: str, keys: Sequence[tuple[str, int]], *, is_known: bool
) -> dict[tuple[str, int], ErrorCode]:
    if not is_known:
        return dict.fromkeys(keys, ErrorCode.LOG_DIR_NOT_FOUND)
    sound = [key for key in keys if _is_name(*key)]
    codes = dict.fromkeys(keys, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        response = ReplicaMover.of(call.services.store).change_replica_dirs({path: sound})
    except LogStoreError as error:
        return dict.fromkeys(keys, code_of(error))
    for key in sound:
        result = response.results.get(key)
        if isinstance(result, UnknownPartitionError) and _is_elsewhere(call.services, *key):
            # after this code, Kafka's tool tries again
            codes[key] = ErrorCode.REPLICA_NOT_AVAILABLE
        else:
            codes[key] = _code_of(result)
    return codes


def _is_elsewhere(services: Services, name: str, partition: int) -> bool:
    """Report whether a partition exists, and has no replica on this broker yet."""
    topic = services.topics.get(name)
    return topic is not None and partition in topic.partitions


def _is_name(topic: str, partition: int) -> bool:
    try:
        validate_topic(topic)
    except ValueError:
        return False
    return 0 <= partition < 2**31


def _code_of(error: LogStoreError | None) -> ErrorCode:
    """Return the error code for one partition; the code is NONE even while the move is running."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, TooManyPreferencesError):
        return ErrorCode.POLICY_VIOLATION
    if isinstance(error, TargetUnfitError):  # cordoned; Kafka's code (KIP-1066)
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return code_of(error)
