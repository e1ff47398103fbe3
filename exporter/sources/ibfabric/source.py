"""The ibfabric source: sweeps an InfiniBand subnet from one local port.

Disabled until it is configured, since a sweep puts load on a shared fabric. One exporter sweeps a subnet; others wait
until it ends.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.config.secret import SecretError
from exporter.core.blocking import BlockingCalls, Hardware, HungError
from exporter.core.definition import Context, Definition
from exporter.core.source import (
    Reading,
    Source,
    SourceError,
)
from exporter.linux.mad.subnet import DOWN
from exporter.linux.mad.umad import LocalPort, UmadError
from exporter.linux.mad.window import DatagramCounts, RequestWindow
from exporter.sources.ibfabric.failures import sweep_failures
from exporter.sources.ibfabric.metrics import SCHEMAS
from exporter.sources.ibfabric.model import format_guid
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.port_access import (
    OpenPort,
    PortOpener,
    UmadPortOpener,
    read_sm_guid,
    subnet_name,
)
from exporter.sources.ibfabric.subnet_lock import SubnetLock
from exporter.sources.ibfabric.sweep import (
    CounterSelection,
    Sweeper,
    SweepError,
)
from exporter.sources.ibfabric.tables import FabricTables, SweepTables

MAX_INTERVAL_SHARE = 0.9
"""Share of the interval that a sweep may take."""

CLOSE_SECONDS = 2.0
"""Seconds to wait for a running sweep when the source is closed."""


@dataclass(slots=True)
class _Session:
    """An open port with the state that is lost when it is closed."""

    local: LocalPort
    port: OpenPort
    window: RequestWindow
    sweeper: Sweeper


class IbFabricSource:
    """Sweeps one subnet."""

    name = "ibfabric"
    changed: asyncio.Event | None = None

    def __init__(
        self,
        options: IbFabricOptions,
        choice: PortChoice,
        host: str,
        opener: PortOpener | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        """Create the source; the port is opened at the first read.

        Args:
            options: Configuration of all subnets.
            choice: The local port of this subnet.
            host: Name of this host, which exporters that wait for it export.
            opener: Finds and opens ports; libibumad if None.
            hardware: The turns of calls into ports; None for a source on its own.
        """
        self.interval = float(options.interval)
        self.settings = (options, choice)
        self.target = "" if choice == PortChoice() else f"{choice.device or '*'}:{choice.port or '*'}"
        self._options = options
        self._choice = choice
        self._opener: PortOpener = UmadPortOpener() if opener is None else opener
        self._selection = CounterSelection(options.only_switches, options.node_selection(), options.service_levels)
        deadline = self.interval * MAX_INTERVAL_SHARE
        turns = (hardware or Hardware()).turns(("ibfabric", self.target))
        self._serial = BlockingCalls(f"ibfabric {self.target}".strip(), deadline, turns)
        self._lock = SubnetLock(f"{host}, process {os.getpid()}", None if options.lock is None else Path(options.lock))
        self._session: _Session | None = None
        self._stopping = threading.Event()
        self._in_use = threading.Lock()  # held while the port is used
        self._is_closed = False
        self._fabric_tables = FabricTables(self._selection)
        self._sweep_tables = SweepTables()
        self._counts = DatagramCounts()
        self._discoveries = 0
        self._subnet = ""
        self._subnet_key = (0, 0)  # GID prefix and SM LID at the time when the name of the subnet was read

    async def applies(self) -> bool:
        """Return true: a configured fabric is always read."""
        return True

    async def read(self) -> Reading:
        """Sweep the fabric once.

        Raises:
            SourceError: The fabric cannot be read.
        """
        if "sweep" not in self._serial.hanging:
            self._stopping.clear()
        result = (await self._serial.run([("sweep", self._sweep)]))["sweep"]
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
        """Stop a running sweep and close the port."""
        self._stopping.set()
        self._is_closed = True
        await self._serial.run([("close", self._close_session_when_idle)])
        self._serial.close()

    def _close_session_when_idle(self) -> None:
        """Close the port when no sweep uses it; a sweep that hangs closes it when it returns."""
        if self._in_use.acquire(timeout=CLOSE_SECONDS):
            try:
                self._close_session()
            finally:
                self._in_use.release()

    def _sweep(self) -> Reading:
        """Sweep the fabric; runs in the thread."""
        with self._in_use:
            try:
                return self._sweep_once()
            finally:
                if self._is_closed:
                    self._close_session()

    def _sweep_once(self) -> Reading:
        try:
            session = self._open_session()
            holder = self._lock.acquire(self._subnet_of(session))
            if holder:
                table = self._sweep_tables.waiting(session.local.name, holder, self._subnet, self._discoveries)
                return Reading([table])
            if session.local.state == DOWN:
                raise SweepError("link", f"{session.local.name}: the local port has no link; check its cable")
            result = session.sweeper.sweep(session.local)
        except (OSError, UmadError):
            self._close_session()
            raise
        except SweepError as error:
            if error.reason != "link":  # without a link the known topology is kept
                self._close_session()  # the port of a driver that was reloaded does not respond either
            raise
        self._discoveries += result.discovered
        tables = [
            *self._fabric_tables.make(result),
            self._sweep_tables.sweeping(session.local.name, result, self._subnet, self._discoveries),
            self._sweep_tables.datagrams(session.local.name, self._counts),
        ]
        return Reading(tables, sweep_failures(result))

    def _open_session(self) -> _Session:
        """Return the open session with the current state of the local port; open one where the port changed."""
        local = self._opener.local(self._choice)
        session = self._session
        if session is not None and (session.local.name, session.local.guid) == (local.name, local.guid):
            session.local = local
            return session
        self._close_session()
        options = self._options
        m_key = options.read_m_key()
        port = self._opener.open(local)
        window = RequestWindow(port, options.limits(), m_key, self._stopping.is_set)
        window.counts = self._counts
        sweeper = Sweeper(window, self._selection, float(options.survey_interval))
        self._session = _Session(local, port, window, sweeper)
        return self._session

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.port.close()
        self._lock.release()

    def _subnet_of(self, session: _Session) -> str:
        """Return the name of the subnet; read again when the GID prefix or the SM LID changed."""
        local = session.local
        key = (local.gid_prefix, local.sm_lid)
        if not self._subnet or key != self._subnet_key:
            sm_guid = read_sm_guid(session.window, local)
            self._subnet_key = (0, 0) if sm_guid is None else key  # read again if the manager did not respond
            if sm_guid is not None or not self._subnet.startswith(format_guid(local.gid_prefix)):
                self._subnet = subnet_name(local, sm_guid)  # else the last name is kept
        return self._subnet


def _build(options: IbFabricOptions, context: Context) -> Sequence[Source]:
    host = context.host
    name = host.name or socket.gethostname()
    return [IbFabricSource(options, choice, name, hardware=host.hardware) for choice in options.ports]


DEFINITION = Definition("ibfabric", IbFabricOptions, SCHEMAS, _build)
