"""Answer DescribeAcls (29), CreateAcls (30) and DeleteAcls (31)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, TypeVar

from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import (
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    checked,
)
from broker.catalog.admin.acls import AclRefusedError
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse

NO_AUTHORIZER = "no authorizer is configured (authorizer.class.name), so there are no ACLs"

Created = CreateAclsResponse.AclCreationResult
FilterResult = DeleteAclsResponse.DeleteAclsFilterResult
Number = TypeVar("Number", ResourceType, PatternType, Operation, Permission)


def answer_describe(call: Call) -> Answer:
    """List the ACLs that a filter selects."""

    def failed(code: ErrorCode, text: str) -> Answer:
        return call.answer(DescribeAclsResponse(error_code=code, error_message=text))

    asked, acls = call.request.message(), call.services.acls
    if acls is None:
        return failed(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        found = acls.describe(_filter_of(asked, asked.resource_type_filter))
    except ValueError as error:
        return failed(ErrorCode.INVALID_REQUEST, str(error))
    except AclRefusedError as error:
        return failed(error.code, str(error))
    Resource = DescribeAclsResponse.DescribeAclsResource  # noqa: N806 - a class
    resources = []
    for pattern, rows in groupby(found, key=lambda one: one.pattern):
        entries = [DescribeAclsResponse.AclDescription(*row.entry) for row in rows]
        resources.append(Resource(pattern.type, pattern.name, pattern.pattern_type, entries))
    return call.answer(DescribeAclsResponse(error_message=None, resources=resources))


def answer_create(call: Call) -> Answer:
    """Add ACLs. If an ACL is invalid, all valid ACLs are still added."""
    asked, acls = call.request.message(), call.services.acls
    rows: list[Any] = []
    wanted: list[Binding] = []
    for one in asked.creations:
        try:
            wanted.append(_binding_of(one))
            rows.append(Created(ErrorCode.NONE, None))
        except ValueError as error:
            rows.append(Created(ErrorCode.INVALID_REQUEST, str(error)))
    failure = _failure_of(acls is None, lambda: acls.create(wanted) if acls else None)
    if failure is not None:
        rows = [Created(*failure) if not row.error_code else row for row in rows]
    return call.answer(CreateAclsResponse(results=rows))


def answer_delete(call: Call) -> Answer:
    """Remove the ACLs that filters select; list the ACLs that each filter has selected."""
    asked, acls = call.request.message(), call.services.acls
    rows: list[Any] = []
    filters: dict[int, BindingFilter] = {}
    for number, one in enumerate(asked.filters):
        try:
            filters[number] = _filter_of(one, one.resource_type_filter)
            rows.append(FilterResult(ErrorCode.NONE, None))
        except ValueError as error:
            rows.append(FilterResult(ErrorCode.INVALID_REQUEST, str(error)))
    found: list[list[Binding]] = []
    failure = _failure_of(
        acls is None, lambda: found.extend(acls.delete(list(filters.values())) if acls else ())
    )
    for number in filters:
        if failure is not None:
            rows[number] = FilterResult(*failure)
    for number, bindings in zip(filters, found, strict=False):
        rows[number] = FilterResult(
            ErrorCode.NONE, None, [_deleted(binding) for binding in bindings]
        )
    return call.answer(DeleteAclsResponse(filter_results=rows))


def _failure_of(has_no_acls: bool, change: Callable[[], object]) -> tuple[ErrorCode, str] | None:
    """Make a change; return the error of the whole request, or None."""
    if has_no_acls:
        return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    try:
        change()
    except AclRefusedError as error:
        return error.code, str(error)
    return None


def _deleted(binding: Binding) -> Any:
    pattern, entry = binding
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        ErrorCode.NONE, None, pattern.type, pattern.name, pattern.pattern_type, *entry
    )


def _number(kind: type[Number], number: int) -> Number:
    try:
        return kind(number)
    except ValueError:
        raise ValueError(f"{number} is not a {kind.__name__}") from None


def _binding_of(asked: Any) -> Binding:
    """Read a binding. Raises ValueError."""
    pattern = Pattern(
        _number(ResourceType, asked.resource_type),
        _number(PatternType, asked.resource_pattern_type),
        asked.resource_name,
    )
    entry = Entry(
        asked.principal,
        asked.host,
        _number(Operation, asked.operation),
        _number(Permission, asked.permission_type),
    )
    return checked(Binding(pattern, entry))


def _filter_of(asked: Any, kind: int) -> BindingFilter:
    """Read a filter. Raises ValueError."""
    return BindingFilter(
        _number(ResourceType, kind),
        asked.resource_name_filter,
        _number(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        _number(Operation, asked.operation),
        _number(Permission, asked.permission_type),
    )
