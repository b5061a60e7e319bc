"""Define the errors of the cluster. The facts about an error are its attributes."""

from __future__ import annotations

from logstore.errors import LogStoreError


class ClusterError(LogStoreError):
    """Serve as the base of the errors of the cluster."""


class BadZnodeError(ClusterError):
    """Report the path of a znode whose data cannot be used, and the reason."""

    path: str
    reason: str
    _template = "{path}: {reason}"


class BrokerIdError(ClusterError):
    """Report why a broker cannot use a broker id."""

    reason: str


class ClusterStartError(ClusterError):
    """Report why a broker cannot join its cluster, and what to do."""

    reason: str


class ClusterGrowthError(ClusterError):
    """Report why a single broker cannot become a cluster, or why a new cluster is incomplete."""

    reason: str


class BadRequestError(ClusterError):
    """Report a request or answer between brokers that contradicts itself or lacks a fact."""

    reason: str


class PeerError(ClusterError):
    """Report that another broker did not answer a request, and why."""

    address: str
    reason: str
    _template = "the broker at {address}: {reason}"


class PeerRefusalError(PeerError):
    """Report that a whole request was refused, or that none of several brokers has answered.

    The attribute `address` says who refused the request.
    """

    _template = "{address}: {reason}"


class PeerGoneError(PeerError):
    """Report that the port of another broker refuses connections: its process is gone."""


class ClusterTimeoutError(ClusterError):
    """Report an event that did not happen in time in a cluster on this machine."""

    what: str
    seconds: float
    _template = "{what}, after {seconds} s"
