"""The commands `ib topology` and `ib diff`: print a fabric, and compare it with a saved one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TextIO

from exporter.commands.terminal import print_output
from exporter.config.errors import UserError, system_errors_as_user_errors
from exporter.config.files import read_regular
from exporter.linux.mad.umad import LocalPort, UmadError
from exporter.linux.mad.window import RequestWindow
from exporter.sources.ibfabric import rendering
from exporter.sources.ibfabric.failures import sweep_failures
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.port_access import (
    PortOpener,
    UmadPortOpener,
    read_sm_guid,
    subnet_name,
)
from exporter.sources.ibfabric.saved_topology import (
    MAX_SIZE,
    SavedFabric,
    encode_json,
    parse_topology,
    save_topology,
)
from exporter.sources.ibfabric.sweep import (
    CounterSelection,
    Sweeper,
    SweepError,
    SweepResult,
)
from exporter.sources.ibfabric.topology_diff import compare

PROGRESS_DELAY = 1.0
"""Seconds after which progress is shown."""

PROGRESS_INTERVAL = 0.2
"""Seconds between two updates of the progress."""

SAME, DIFFERENT, FAILED = 0, 1, 2
"""Exit statuses of `ib diff`: those of diff(1)."""


@dataclass(frozen=True, slots=True)
class FabricAccess:
    """How a fabric is read.

    Attributes:
        choice: The local port.
        options: The limits, and the place of the M_Key.
    """

    choice: PortChoice
    options: IbFabricOptions


def topology(access: FabricAccess, form: str, *, counters: bool, opener: PortOpener | None = None) -> int:
    """Print the fabric.

    Args:
        access: How it is read.
        form: Output format: `tree`, `dot` or `json`.
        counters: Whether error counters are read.
        opener: Finds and opens ports; libibumad if None.

    Returns:
        Exit status: 0 printed, 1 the fabric could not be read.
    """
    try:
        fabric = read_fabric(access, counters=counters, opener=opener)
    except UserError as error:
        _print_error(str(error))
        return 1
    if form == "json":
        print_output([encode_json(fabric).removesuffix("\n")])
    else:
        print_output(
            rendering.render_dot(fabric)
            if form == "dot"
            else rendering.render_tree(fabric, colours=_has_colours(sys.stdout))
        )
    return 0


def diff(
    access: FabricAccess, before: Path, after: Path | None, *, as_json: bool, opener: PortOpener | None = None
) -> int:
    """Print the differences between a saved topology and the fabric, or a second file.

    Args:
        access: How the fabric is read.
        before: The saved topology.
        after: A second saved topology; None for the fabric.
        as_json: Whether to print JSON.
        opener: Finds and opens ports; libibumad if None.

    Returns:
        Exit status: 0 no difference, 1 some, 2 they could not be compared.
    """
    try:
        old = load_topology(before)
        new = read_fabric(access, counters=False, opener=opener) if after is None else load_topology(after)
    except UserError as error:
        _print_error(str(error))
        return FAILED
    found = compare(old, new)
    if as_json:
        print_output([encode_json(found).removesuffix("\n")])
    else:
        print_output(rendering.render_diff(found, colours=_has_colours(sys.stdout)))
    return DIFFERENT if found.count else SAME


def load_topology(path: Path) -> SavedFabric:
    """Read a saved topology.

    Raises:
        UserError: The file cannot be read, or is not a valid document.
    """
    with system_errors_as_user_errors(f"{path}: cannot be read", "check its name and its permissions"):
        data = read_regular(path, MAX_SIZE)
    return parse_topology(data, str(path))


def read_fabric(access: FabricAccess, *, counters: bool, opener: PortOpener | None = None) -> SavedFabric:
    """Read the fabric once; print nodes and ports that do not respond to standard error. Blocks.

    Raises:
        UserError: The port cannot be used, the M_Key cannot be read, or no node beyond this host responds though its
            link is up.
    """
    try:
        return _read_fabric(access, counters=counters, opener=opener)
    except (UmadError, SweepError, OSError) as error:
        raise UserError(str(error)) from None


def _read_fabric(access: FabricAccess, *, counters: bool, opener: PortOpener | None) -> SavedFabric:
    opener = UmadPortOpener() if opener is None else opener
    m_key = access.options.read_m_key()
    local = opener.local(access.choice)
    port = opener.open(local)
    try:
        with _show_progress() as progress:
            window = RequestWindow(port, access.options.limits(), m_key, progress.update)
            progress.window = window
            result = _sweep(window, local, counters=counters)
            subnet = subnet_name(local, read_sm_guid(window, local))
    finally:
        port.close()
    for failure in sweep_failures(result):
        _print_error(failure.detail)
    return save_topology(result, subnet, datetime.now(UTC))


def _sweep(window: RequestWindow, local: LocalPort, *, counters: bool) -> SweepResult:
    """Discover the fabric, and read its counters if requested."""
    sweeper = Sweeper(window, CounterSelection(), 0.0)
    if counters:
        return sweeper.sweep(local)
    problems = sweeper.discover()
    return SweepResult(sweeper.fabric, {}, {}, problems, {}, (), discovered=True, seconds=0.0)


class _Progress:
    """Shows progress on a terminal, in a line that is overwritten and cleared at the end."""

    def __init__(self, to: TextIO) -> None:
        self.window: RequestWindow | None = None
        self._to = to
        self._begun = monotonic()
        self._next = self._begun + PROGRESS_DELAY
        self._is_shown = False

    def update(self) -> bool:
        """Show the progress if the last update is old enough; returns false, which lets the request window continue."""
        now = monotonic()
        if self.window is not None and now >= self._next:
            counts = self.window.counts
            text = f"{now - self._begun:.0f} s: {counts.received} replies, {counts.timeouts} timeouts"
            self._to.write(f"\r{rendering.DIM}{text}{rendering.PLAIN}\x1b[K")
            self._to.flush()
            self._next, self._is_shown = now + PROGRESS_INTERVAL, True
        return False

    def clear(self) -> None:
        """Clear the line."""
        if self._is_shown:
            self._to.write("\r\x1b[K")
            self._to.flush()


class _NoProgress(_Progress):
    """Shows nothing, since there is no terminal."""

    def update(self) -> bool:
        """Return false, which lets the request window continue."""
        return False


@contextmanager
def _show_progress() -> Iterator[_Progress]:
    """Show progress until the end of the block, if standard error is a terminal."""
    progress = _Progress(sys.stderr) if sys.stderr.isatty() else _NoProgress(sys.stderr)
    try:
        yield progress
    finally:
        progress.clear()


def _has_colours(to: TextIO) -> bool:
    return to.isatty() and not os.environ.get("NO_COLOR")


def _print_error(text: str) -> None:
    print(f"fabric-exporter: {rendering.escape(text)}", file=sys.stderr)  # noqa: T201  # output of a command
