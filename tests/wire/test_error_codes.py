"""Error codes have Kafka's numbers, and the flags that its clients go by."""

from __future__ import annotations

from kio.schema import errors

from broker.wire.error_codes import REFRESHING, RETRIABLE, ErrorCode


def test_names_numbers_and_flags_are_those_of_kio() -> None:
    """The oracle takes them from Kafka's source, and the retriable ones too."""
    for theirs in errors.ErrorCode:
        ours = ErrorCode(theirs.value)
        assert ours.name.lower() == theirs.name.lower()
        assert ours.is_retriable == theirs.retriable
    assert len(ErrorCode) == len(errors.ErrorCode)


def test_a_refresh_of_metadata_is_followed_by_another_try() -> None:
    """A client that looks for another leader does so to send again."""
    assert REFRESHING < RETRIABLE
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert not ErrorCode.NOT_ENOUGH_REPLICAS.refreshes_metadata
    assert not ErrorCode.UNKNOWN_SERVER_ERROR.is_retriable
