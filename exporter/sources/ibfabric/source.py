"""The InfiniBand fabric: every port of every switch and adapter, by management datagrams from one port of this host.

Off until it is configured: what is swept is shared by all. One exporter sweeps a subnet; a second one waits. How the
fabric is found, followed and counted is in `ib/`.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

import msgspec

from exporter.config.errors import check_patterns
from exporter.config.secret import SecretError, read_secret
from exporter.config.units import Duration
from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Selection,
    Source,
    SourceError,
)
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.linux.mad import umad
from exporter.linux.mad.datagram import (
    Answer,
    Attribute,
    Request,
    Route,
)
from exporter.linux.mad.subnet import DOWN, sm_info
from exporter.linux.mad.umad import LocalPort, UmadError, UmadPort
from exporter.linux.mad.window import (
    Counts,
    Endpoint,
    Limits,
    Window,
)
from exporter.sources.ibfabric.lock import Lock
from exporter.sources.ibfabric.metrics import DATAGRAMS, SCHEMAS, SWEEPS
from exporter.sources.ibfabric.model import End, guid_text
from exporter.sources.ibfabric.sweep import (
    M_KEY_LEVEL,
    Outcome,
    Sweeper,
    SweepError,
    Wanted,
)
from exporter.sources.ibfabric.tables import FabricTables

SHARE = 0.9
"""Of the interval, that a pass may take."""

LONGEST_END = 2.0
"""Seconds for which it is waited for a pass to end that was told to."""

MOST_FAILURES = 200
"""Failures of ports and nodes that are told of one pass; the rest is told in one."""

OUTCOMES = {
    "sent": "sent",
    "received": "answered",
    "timeouts": "timed_out",
    "retries": "retried",
    "stray": "stray",
    "malformed": "malformed",
}
"""Labels of datagrams by the names of their counts."""


class PortChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A port of this host that a fabric is looked at from.

    Attributes:
        device: Name of the adapter, such as `mlx5_0`; the first with an active port where empty.
        port: Number of the port; the first that is active where not given.
    """

    device: str = ""
    port: int | None = None

    def __post_init__(self) -> None:
        """See that the number is one of a port."""
        if self.port is not None and not 1 <= self.port <= umad.MAX_PORTS:
            raise ValueError(f"port is {self.port}; adapters have ports 1 to {umad.MAX_PORTS}")


class IbFabricOptions(Options, frozen=True, kw_only=True):
    """Configuration of `sources.ibfabric`; include and exclude are GUIDs of nodes, 16 hex digits, as patterns.

    Attributes:
        ports: From which ports of this host; one for each subnet.
        only_switches: Whether ports of adapters are left to the exporters of their own hosts.
        service_levels: Whether traffic is told by service level, too.
        survey_interval: Time after which all of the fabric is looked for anew, if nothing asks for it before.
        window: Datagrams in flight.
        per_destination: Of them to one node: a switch has one processor for all its ports.
        per_second: Datagrams sent in a second, at most.
        timeout: Time to wait for an answer.
        retries: Tries after the first.
        m_key_file: File with the key of a fabric that is protected by one: a number, in hexadecimal digits with 0x.
        m_key_env: Environment variable with it.
        lock: Folder that all hosts share which may sweep; one host's processes find each other without.
    """

    enabled: bool = False
    interval: Duration = Duration(30.0)
    ports: tuple[PortChoice, ...] = (PortChoice(),)
    only_switches: bool = False
    service_levels: bool = False
    survey_interval: Duration = Duration(600.0)
    window: int = 64
    per_destination: int = 1
    per_second: int = 10_000
    timeout: Duration = Duration(0.5)
    retries: int = 2
    m_key_file: str | None = None
    m_key_env: str | None = None
    lock: str | None = None

    def __post_init__(self) -> None:
        """See that the numbers are such as a fabric bears."""
        super().__post_init__()
        check_patterns("include", self.include)
        bounds = {
            "window": (self.window, 1, 1024),
            "per_destination": (self.per_destination, 1, 16),
            "per_second": (self.per_second, 10, 1_000_000),
            "retries": (self.retries, 0, 10),
        }
        for key, (value, least, most) in bounds.items():
            if not least <= value <= most:
                raise ValueError(f"{key} is {value}; give {least} to {most}")
        patience = 2 * self.timeout * (self.retries + 1)  # the manager is asked who it is, and a silent node how it is
        if self.interval < patience:
            text = f"interval is {self.interval:g}s; give {patience:g}s or more, or a shorter timeout or fewer retries"
            raise ValueError(f"{text}: nodes that do not answer take so long")
        if not self.ports:
            raise ValueError("ports is empty; leave it out for the first active port of this host")
        if len(set(self.ports)) < len(self.ports):
            raise ValueError("ports has one port twice; give one for each subnet")
        if self.m_key_file is not None and self.m_key_env is not None:
            raise ValueError("give one of m_key_file and m_key_env")

    def limits(self) -> Limits:
        """Give how hard a fabric may be asked."""
        return Limits(self.window, self.per_destination, float(self.per_second), float(self.timeout), self.retries + 1)


class Port(Endpoint, Protocol):
    """A port that is open for datagrams."""

    def close(self) -> None:
        """Let go of it."""


class Gate(Protocol):
    """How this host's ports are found and opened."""

    def local(self, choice: PortChoice) -> LocalPort:
        """Tell of the chosen port as it is now; raises UmadError."""

    def open(self, port: LocalPort) -> Port:
        """Open it; raises UmadError."""


class UmadGate:
    """The ports that libibumad knows."""

    def local(self, choice: PortChoice) -> LocalPort:
        """Tell of the chosen port as it is now."""
        return umad.chosen(umad.local_ports(), choice.device, choice.port)

    def open(self, port: LocalPort) -> Port:
        """Open it."""
        return UmadPort(port.device, port.number)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another exporter sweeps the subnet."""

    holder: str


@dataclass(slots=True)
class _Open:
    """A port that is open, and who asks by it."""

    local: LocalPort
    port: Port
    window: Window
    sweeper: Sweeper


class IbFabricSource:
    """Sweeps one subnet."""

    name = "ibfabric"
    changed: asyncio.Event | None = None

    def __init__(self, options: IbFabricOptions, choice: PortChoice, host: str, gate: Gate | None = None) -> None:
        """Take the configuration.

        Args:
            options: All of it.
            choice: The port to look from.
            host: Name of this host, for those that wait.
            gate: Finds and opens ports; libibumad where not given.
        """
        self.interval = float(options.interval)
        self.settings = (options, choice)
        self.target = "" if choice == PortChoice() else f"{choice.device or '*'}:{choice.port or '*'}"
        self._options = options
        self._choice = choice
        self._gate: Gate = UmadGate() if gate is None else gate
        self._wanted = Wanted(options.only_switches, guids(options), options.service_levels)
        self._serial = BlockingCalls(
            f"ibfabric {self.target}".strip(), self.interval * SHARE, ("ibfabric", self.target)
        )
        self._lock = Lock(f"{host}, process {os.getpid()}", None if options.lock is None else Path(options.lock))
        self._open: _Open | None = None
        self._stopping = threading.Event()
        self._passing = threading.Lock()  # held while the port is used
        self._is_closed = False
        self._tables = FabricTables(self._wanted)
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (SWEEPS, DATAGRAMS)}
        self._counts = Counts()
        self._surveys = 0
        self._subnet = ""
        self._asked = (0, 0)  # the prefix and the manager's LID that the subnet's name was made of

    async def applies(self) -> bool:
        """Tell that a fabric that was configured is there to be read."""
        return True

    async def read(self) -> Reading:
        """Make one pass.

        Raises:
            SourceError: Nothing of the fabric can be seen.
        """
        if "pass" not in self._serial.hanging:
            self._stopping.clear()
        result = (await self._serial.run([("pass", self._pass)]))["pass"]
        if isinstance(result, HungError):
            self._stopping.set()
            raise SourceError("timeout", str(result))
        if isinstance(result, (UmadError, SweepError)):
            raise SourceError(result.reason, str(result))
        if isinstance(result, SecretError):
            raise SourceError("credentials", str(result))
        if isinstance(result, OSError):
            raise SourceError("port", f"{self.target or 'the port'}: {result}")
        if isinstance(result, Exception):
            raise result
        return result

    async def close(self) -> None:
        """Stop the pass that is under way, and let go of the port when it has ended."""
        self._stopping.set()
        self._is_closed = True
        await self._serial.run([("close", self._end)])
        self._serial.close()

    def _end(self) -> None:
        """Let go of the port as soon as no pass uses it; one that hangs lets go of it when it comes back."""
        if self._passing.acquire(timeout=LONGEST_END):
            try:
                self._shut()
            finally:
                self._passing.release()

    def _pass(self) -> Reading:
        """Make one pass; runs in the thread."""
        with self._passing:
            try:
                return self._made()
            finally:
                if self._is_closed:
                    self._shut()

    def _made(self) -> Reading:
        """Make one pass."""
        try:
            opened = self._opened()
            holder = self._lock.take(self._subnet_of(opened))
            if holder:
                return Reading([self._about(opened.local, Waiting(holder))])
            if opened.local.state == DOWN:
                raise SweepError("link", f"{opened.local.name}, from which the fabric is looked at, has no link")
            outcome = opened.sweeper.sweep(opened.local)
        except (OSError, UmadError):
            self._shut()
            raise
        except SweepError as error:
            if error.reason != "link":  # then what is known of the fabric is still the best there is
                self._shut()  # a port of a driver that was loaded anew answers nothing either
            raise
        self._surveys += outcome.surveyed
        tables = self._tables.make(outcome)
        return Reading([*tables, self._about(opened.local, outcome), self._datagrams(opened)], failures(outcome))

    def _opened(self) -> _Open:
        """Give the open port, with what the kernel tells of it now."""
        local = self._gate.local(self._choice)
        opened = self._open
        if opened is not None and (opened.local.name, opened.local.guid) == (local.name, local.guid):
            opened.local = local
            return opened
        self._shut()
        options = self._options
        m_key = read_m_key(options)
        port = self._gate.open(local)
        window = Window(port, options.limits(), m_key, self._stopping.is_set)
        window.counts = self._counts
        self._open = _Open(local, port, window, Sweeper(window, self._wanted, float(options.survey_interval)))
        return self._open

    def _shut(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.port.close()
        self._lock.release()

    def _subnet_of(self, opened: _Open) -> str:
        """Name the subnet; asked for anew where the prefix or the manager is another one."""
        local = opened.local
        asked = (local.gid_prefix, local.sm_lid)
        if not self._subnet or asked != self._asked:
            manager = manager_of(opened.window, local)
            self._asked = (0, 0) if manager is None else asked  # one that is silent may yet answer
            if manager is not None or not self._subnet.startswith(guid_text(local.gid_prefix)):
                self._subnet = subnet_name(local, manager)  # while it is silent the last one stands for it
        return self._subnet

    def _about(self, local: LocalPort, what: Outcome | Waiting) -> Table:
        """Make the table of the passes themselves."""
        built = TableBuilder(SWEEPS)
        if isinstance(what, Waiting):
            built.row((local.name,), {"info": ("waiting", what.holder, self._subnet), "surveys_total": self._surveys})
        else:
            nodes = what.fabric.nodes.values()
            built.row(
                (local.name,),
                {
                    "info": ("sweeping", "", self._subnet),
                    "duration_seconds": what.seconds,
                    "surveys_total": self._surveys,
                    "switches": sum(node.is_switch for node in nodes),
                    "adapters": sum(node.kind == "adapter" for node in nodes),
                    "links": sum(one <= other for one, other in what.fabric.peers.items()),
                    "unanswered_links": len(what.fabric.unanswered),
                },
            )
        return built.table(self._keepers[SWEEPS], monotonic())

    def _datagrams(self, opened: _Open) -> Table:
        built = TableBuilder(DATAGRAMS)
        for name, outcome in OUTCOMES.items():
            built.row((opened.local.name, outcome), {"datagrams_total": getattr(self._counts, name)})
        return built.table(self._keepers[DATAGRAMS], monotonic())


def manager_of(window: Window, local: LocalPort) -> int | None:
    """Ask the subnet manager for its GUID; None where there is none, or it is silent. Blocks."""
    found: list[int] = []

    def take(_: object, answer: Answer) -> None:
        if isinstance(answer, bytes):
            found.append(sm_info(answer).guid)

    if local.sm_lid:
        window.run([Request("sm", Route(local.sm_lid), Attribute.SM_INFO, take)])
    return found[0] if found else None


def guids(options: IbFabricOptions) -> Selection:
    """Give which nodes are wanted: GUIDs may be written with 0x, colons and capital letters."""
    include, exclude = (
        tuple(one.lower().removeprefix("0x").replace(":", "") for one in patterns)
        for patterns in (options.include, options.exclude)
    )
    return Selection(include=include, exclude=exclude)


def subnet_name(local: LocalPort, manager: int | None) -> str:
    """Name a subnet so that every host in it names it alike: by its prefix and its subnet manager."""
    return f"{guid_text(local.gid_prefix)}-{'unmanaged' if manager is None else guid_text(manager)}"


def read_m_key(options: IbFabricOptions) -> int:
    """Read the key of subnet management; 0 where the fabric has none.

    Raises:
        SecretError: It cannot be read, or is no number of 64 bits.
    """
    if options.m_key_file is None and options.m_key_env is None:
        return 0
    text = read_secret(None, options.m_key_file, options.m_key_env)
    try:
        key = int(text.strip(), 0)
    except ValueError:
        key = -1
    if not 0 <= key < 1 << 64:
        place = options.m_key_file or f"environment variable {options.m_key_env}"
        raise SecretError(f"{place}: the M_Key is no number of 64 bits; write it as 0x and 16 hexadecimal digits")
    return key


def failures(outcome: Outcome) -> list[Failure]:
    """Tell what did not answer: nodes, then ports of others."""
    fabric = outcome.fabric
    found = [
        Failure(guid_text(guid), problem.value, f"{fabric.nodes[guid].name}: subnet management: {problem.value}")
        for guid, problem in sorted(outcome.node_problems.items())
        if guid in fabric.nodes
    ]
    found += [
        Failure(guid_text(end.guid), problem.value, f"{_named(outcome, end)}: counters: {problem.value}")
        for end, problem in sorted(outcome.problems.items())
        if end.guid not in outcome.node_problems
    ]
    level = max((port.protect for node in fabric.nodes.values() for port in node.ports.values()), default=0)
    key = (
        f"; the fabric is protected by an M_Key (level {level}): it may want another one"
        if level >= M_KEY_LEVEL
        else ""
    )
    found += [
        Failure(guid_text(end.guid), "peer", f"{_named(outcome, end)}: the link is up, its peer does not answer{key}")
        for end in sorted(fabric.unanswered)
    ]
    if len(found) > MOST_FAILURES:
        rest = Failure("", "many", f"and {len(found) - MOST_FAILURES} more ports and nodes that do not answer")
        found = [*found[:MOST_FAILURES], rest]
    return found


def _named(outcome: Outcome, end: End) -> str:
    node = outcome.fabric.nodes.get(end.guid)
    return f"{guid_text(end.guid) if node is None else node.name}, port {end.port}"


def _build(options: IbFabricOptions, host: Host) -> Sequence[Source]:
    return [IbFabricSource(options, choice, host.name or socket.gethostname()) for choice in options.ports]


DEFINITION = Definition("ibfabric", IbFabricOptions, SCHEMAS, _build)
