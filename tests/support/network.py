"""Give processes a network of their own: a namespace each, joined by a bridge, all inside Linux.

Needs root, `ip` and `nsenter`. No address of it exists outside the namespaces: the bridge is in a
namespace of its own, too. Every name carries the process that made it. What a killed process left
is swept before the first network is made.

    b1 --+
    b2 --+-- switch      10.77.0.1, 10.77.0.2, ...
    b3 --+

Nobody asks for the link address of another node: each namespace has a fixed one for each of the
others. To cut one direction, the fixed address is replaced by one that no node has. So packets are
dropped without an error, connections stay open, and nothing but `ip` is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .loop_disk import SEARCH_PATH, command, orderly_end

PREFIX = "logstore-net-"
NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:ff:ff"
Way = tuple[str, str]


def why_not() -> str | None:
    """Say why no network can be made here, or None when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nsenter"):
        if not shutil.which(tool, path=SEARCH_PATH):
            return f"{tool} is not installed"
    name = f"{PREFIX}{os.getpid()}-probe"
    try:
        command("ip", "netns", "add", name)
        try:
            for words in (["br0", "type", "bridge"], ["v0", "type", "veth", "peer", "name", "v1"]):
                command("ip", "-n", name, "link", "add", *words)
        finally:
            command("ip", "netns", "del", name)
    except OSError as error:
        return f"no network can be made: {error}"
    return None


class Network:
    """Namespaces that reach each other, until a way between two of them is cut.

    Threads: one thread at a time may call `cut` and `heal`.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.cut_ways: frozenset[Way] = frozenset()
        self._switch = f"{PREFIX}{os.getpid()}-switch"

    def name(self, node: str) -> str:
        """The namespace of a node, as `ip netns` names it."""
        return f"{PREFIX}{os.getpid()}-{node}"

    def address(self, node: str) -> str:
        """The address of a node."""
        return f"10.77.0.{self.nodes.index(node) + 1}"

    def prefix(self, node: str) -> list[str]:
        """The words before a command that runs in the namespace of a node."""
        return ["nsenter", f"--net={NAMESPACES / self.name(node)}"]

    def make(self) -> None:
        """Make the namespaces and join them."""
        command("ip", "netns", "add", self._switch)
        in_switch = ["link add bridge0 type bridge", "link set bridge0 up"]
        for number, node in enumerate(self.nodes, 1):
            name = self.name(node)
            command("ip", "netns", "add", name)
            port = f"port{number}"
            in_switch += [
                f"link add {port} type veth peer name link0 netns {name}",
                f"link set {port} master bridge0", f"link set {port} up",
            ]  # fmt: skip
        _batch(self._switch, in_switch)
        for node in self.nodes:
            in_node = [
                "link set lo up", f"link set link0 address {self._link(node)}",
                f"addr add {self.address(node)}/24 dev link0", "link set link0 up",
                *(self._neighbour(other, self._link(other)) for other in self.nodes),
            ]  # fmt: skip
            _batch(self.name(node), in_node)

    def remove(self) -> None:
        """Remove the namespaces; processes in them must have ended."""
        for name in (*map(self.name, self.nodes), self._switch):
            if (NAMESPACES / name).exists():
                command("ip", "netns", "del", name)

    def cut(self, ways: Iterable[Way]) -> None:
        """Drop all packets from the first node of each way to the second, and no others."""
        wanted = frozenset(ways)
        for source in self.nodes:
            lines = [
                self._neighbour(target, NOBODY if is_cut else self._link(target))
                for target in self.nodes
                if (is_cut := (source, target) in wanted) != ((source, target) in self.cut_ways)
            ]
            if lines:
                _batch(self.name(source), lines)
        self.cut_ways = wanted

    def heal(self) -> None:
        """Let all packets pass."""
        self.cut(())

    def _link(self, node: str) -> str:
        return f"02:00:00:00:00:{self.nodes.index(node) + 1:02x}"

    def _neighbour(self, node: str, link: str) -> str:
        return f"neigh replace {self.address(node)} lladdr {link} nud permanent dev link0"


def both_ways(some: Iterable[str], others: Iterable[str]) -> set[Way]:
    """List all ways between two groups of nodes."""
    pairs = [(one, other) for one in some for other in others]
    return {way for one, other in pairs for way in ((one, other), (other, one))}


def _batch(name: str, lines: Sequence[str]) -> None:
    done = subprocess.run(
        ["ip", "-n", name, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True,
        text=True, check=False, env={**os.environ, "PATH": SEARCH_PATH},
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"ip -n {name}: {done.stderr.strip()}")


@contextlib.contextmanager
def network(*nodes: str) -> Iterator[Network]:
    """Make a network, and remove it whatever happens."""
    sweep()
    with orderly_end():
        made = Network(nodes)
        try:
            made.make()
            yield made
        finally:
            made.remove()


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Let this thread, and the threads that it starts, have their sockets in a namespace."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        entered = os.open(NAMESPACES / name, os.O_RDONLY)
        try:
            _enter(entered)
        finally:
            os.close(entered)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def _enter(fd: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def sweep() -> None:
    """Remove the namespaces of processes that are gone."""
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                command("ip", "netns", "del", path.name)
