"""Answer AlterConfigs (33), IncrementalAlterConfigs (44) and ListConfigResources (74)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from broker.catalog.admin.topic_admin import TopicRefusedError
from broker.catalog.dynamic_settings import FixedSettingError
from broker.catalog.setting_changes import Change, Operation, replacing
from broker.catalog.settings import InvalidSettingError
from broker.machines.exchange import Answer
from broker.requests.configs import BROKER, TOPIC
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.requests.topic_changes import fault_of_name
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AlterConfigsResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from logstore import LogStoreError

# 8, 16 and 32 are loggers, metrics and groups. This broker has no such resources.
LISTED = frozenset({TOPIC, BROKER, 8, 16, 32})
TYPES_FROM = 1  # the first version of ListConfigResources that lists more than metrics


def answer_alter(call: Call) -> Answer:
    """Change the named settings of resources, and reset all other settings of a topic."""

    def changes_of(resource: Any) -> list[Change]:
        settings = [(one.name, one.value) for one in resource.configs]
        if resource.resource_type == TOPIC:
            return replacing(settings, call.services.topic_admin.setting_keys)
        return [Change(name, 0, value) for name, value in settings]

    Row = AlterConfigsResponse.AlterConfigsResourceResponse  # noqa: N806 - a class
    rows = [Row(*one) for one in _alter_all(call, changes_of)]
    return call.answer(AlterConfigsResponse(responses=rows))


def answer_incremental(call: Call) -> Answer:
    """Change only the named settings."""

    def changes_of(resource: Any) -> list[Change]:
        return [Change(one.name, one.config_operation, one.value) for one in resource.configs]

    Row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse  # noqa: N806 - a class
    rows = [Row(*one) for one in _alter_all(call, changes_of)]
    return call.answer(IncrementalAlterConfigsResponse(responses=rows))


def _alter_all(
    call: Call, changes_of: Callable[[Any], list[Change]]
) -> list[tuple[ErrorCode, str | None, int, str]]:
    """Change each resource separately; return the fields of its row in the answer."""
    asked = call.request.message()
    named = Counter((one.resource_type, one.resource_name) for one in asked.resources)
    rows = []
    for one in asked.resources:
        kind, name = one.resource_type, one.resource_name
        code, reason = ErrorCode.INVALID_REQUEST, "the request names the resource twice"
        if named[kind, name] == 1:
            changes = changes_of(one)
            code, reason = _alter(call.services, kind, name, changes, asked.validate_only)
        rows.append((code, reason or None, kind, name))
    return rows


def _alter(
    services: Services, kind: int, name: str, changes: Sequence[Change], is_dry: bool
) -> tuple[ErrorCode, str]:
    refusal = _refusal_of(services, kind, name, changes)
    if refusal is not None:
        return refusal
    try:
        if kind == TOPIC:
            services.topic_admin.alter(name, changes, is_dry=is_dry)
        else:
            services.settings.change(changes, is_dry=is_dry)
    except TopicRefusedError as error:
        return error.code, str(error)
    except FixedSettingError as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    except InvalidSettingError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    except LogStoreError as error:
        return code_of(error), str(error)
    return ErrorCode.NONE, ""


def _refusal_of(
    services: Services, kind: int, name: str, changes: Sequence[Change]
) -> tuple[ErrorCode, str] | None:
    """Check a change, but not its keys and values; return the error, or None."""
    keys = [change.key for change in changes]
    if len(set(keys)) < len(keys):
        return ErrorCode.INVALID_REQUEST, "the request changes a setting twice"
    if any(change.text is None and change.operation != Operation.DELETE for change in changes):
        return ErrorCode.INVALID_REQUEST, "the request has a setting without a value"
    if kind == TOPIC and name:
        fault = fault_of_name(name)
        return (fault, f"no topic can have the name {name!r}") if fault else None
    if kind == BROKER and name == "" and services.settings.has_replication:
        # Kafka would change the settings of all brokers; this broker can change only its own
        # settings.
        return ErrorCode.INVALID_REQUEST, "change the settings of each broker by its id"
    if kind == BROKER and name in ("", str(services.leadership.broker_id)):
        return None
    reason = f"a resource of type {kind} and the name {name!r} has no settings here"
    return ErrorCode.INVALID_REQUEST, reason


def answer_list(call: Call) -> Answer:
    """List the resources that have settings: topics and this broker."""
    services, asked = call.services, call.request.message()
    Row = ListConfigResourcesResponse.ConfigResource  # noqa: N806 - a class
    rows = []
    if not LISTED.issuperset(asked.resource_types):
        return call.answer(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    if call.request.version >= TYPES_FROM:
        kinds = set(asked.resource_types) or {TOPIC, BROKER}
        if TOPIC in kinds:
            rows += [Row(name, TOPIC) for name in services.topics.current().by_name]
        if BROKER in kinds:
            rows.append(Row(str(services.leadership.broker_id), BROKER))
    return call.answer(ListConfigResourcesResponse(config_resources=rows))
