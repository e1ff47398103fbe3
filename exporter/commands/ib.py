"""The commands `ib topology` and `ib diff`: a fabric as it is now, and how it differs from a saved one."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TextIO

from exporter.config.files import read_regular
from exporter.config.secret import SecretError
from exporter.config.yaml_reader import ConfigError
from exporter.linux.mad.umad import LocalPort, UmadError
from exporter.linux.mad.window import Window
from exporter.sources.ibfabric import drawing
from exporter.sources.ibfabric.difference import compare
from exporter.sources.ibfabric.document import (
    MAX_SIZE,
    SavedFabric,
    document_of,
    parse,
    written,
)
from exporter.sources.ibfabric.source import (
    Gate,
    IbFabricOptions,
    PortChoice,
    UmadGate,
    failures,
    manager_of,
    read_m_key,
    subnet_name,
)
from exporter.sources.ibfabric.sweep import (
    Outcome,
    Sweeper,
    SweepError,
    Wanted,
)

PATIENCE = 1.0
"""Seconds after which it is told how far things are."""

BETWEEN = 0.2
"""Seconds between two times that it is told."""

SAME, DIFFERENT, FAILED = 0, 1, 2
"""Exit statuses of `ib diff`, as diff has them."""

UNSEEN = (ConfigError, SecretError, UmadError, SweepError, OSError, ValueError)
"""Why a fabric may not be seen."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How a fabric is asked.

    Attributes:
        choice: The port of this host to look from.
        options: The limits, and where the key is.
    """

    choice: PortChoice
    options: IbFabricOptions


def topology(asking: Asking, form: str, *, counters: bool, gate: Gate | None = None) -> int:
    """Print the fabric.

    Args:
        asking: How it is asked.
        form: `tree`, `dot` or `json`.
        counters: Whether its ports are asked what they counted.
        gate: Finds and opens ports; libibumad where not given.

    Returns:
        Exit status: 0 printed, 1 nothing could be seen.
    """
    try:
        fabric = look(asking, counters=counters, gate=gate)
    except UNSEEN as error:
        _complain(str(error))
        return 1
    if form == "json":
        sys.stdout.write(written(fabric))
    else:
        _print(drawing.graph(fabric) if form == "dot" else drawing.tree(fabric, colours=_has_colours(sys.stdout)))
    return 0


def diff(asking: Asking, before: Path, after: Path | None, *, as_json: bool, gate: Gate | None = None) -> int:
    """Print how the fabric, or a second file, differs from a saved one.

    Args:
        asking: How the fabric is asked.
        before: The saved one.
        after: The second file; None for the fabric as it is now.
        as_json: Whether for programs.
        gate: As of `topology`.

    Returns:
        Exit status: 0 no difference, 1 some, 2 they could not be compared.
    """
    try:
        old = load(before)
        new = look(asking, counters=False, gate=gate) if after is None else load(after)
    except UNSEEN as error:
        _complain(str(error))
        return FAILED
    found = compare(old, new)
    if as_json:
        sys.stdout.write(written(found))
    else:
        _print(drawing.differences(found, colours=_has_colours(sys.stdout)))
    return DIFFERENT if found.count else SAME


def load(path: Path) -> SavedFabric:
    """Read a saved fabric.

    Raises:
        ConfigError: It cannot be read, or is none.
    """
    try:
        return parse(read_regular(path, MAX_SIZE), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its name and its permissions") from None


def look(asking: Asking, *, counters: bool, gate: Gate | None = None) -> SavedFabric:
    """Look at the fabric once, and say on standard error what of it does not answer. Blocks.

    Raises:
        UmadError: The port cannot be used.
        SecretError: The key cannot be read.
        SweepError: There is nothing beyond this host, though its link is up.
        OSError: The port is gone.
    """
    gate = UmadGate() if gate is None else gate
    m_key = read_m_key(asking.options)
    local = gate.local(asking.choice)
    port = gate.open(local)
    try:
        with _progress() as progress:
            window = Window(port, asking.options.limits(), m_key, progress.tell)
            progress.window = window
            outcome = _pass(window, local, counters=counters)
            subnet = subnet_name(local, manager_of(window, local))
    finally:
        port.close()
    for failure in failures(outcome):
        _complain(failure.detail)
    return document_of(outcome, subnet, datetime.now(UTC))


def _pass(window: Window, local: LocalPort, *, counters: bool) -> Outcome:
    """Survey the fabric, and count it if that is asked for."""
    sweeper = Sweeper(window, Wanted(), 0.0)
    if counters:
        return sweeper.sweep(local)
    problems = sweeper.survey()
    return Outcome(sweeper.fabric, {}, {}, problems, {}, (), surveyed=True, seconds=0.0)


class _Progress:
    """Says on a terminal how far it is, in a line that is written over and wiped away at the end."""

    def __init__(self, to: TextIO) -> None:
        self.window: Window | None = None
        self._to = to
        self._begun = monotonic()
        self._next = self._begun + PATIENCE
        self._told = False

    def tell(self) -> bool:
        """Say it when it is time to; called by the window, which asks again and again whether to stop: never."""
        now = monotonic()
        if self.window is not None and now >= self._next:
            counts = self.window.counts
            text = f"{now - self._begun:.0f} s: {counts.received} answers, {counts.timeouts} without one"
            self._to.write(f"\r{drawing.DIM}{text}{drawing.PLAIN}\x1b[K")
            self._to.flush()
            self._next, self._told = now + BETWEEN, True
        return False

    def wipe(self) -> None:
        """Take the line away."""
        if self._told:
            self._to.write("\r\x1b[K")
            self._to.flush()


class _Silent(_Progress):
    """Says nothing: there is no terminal."""

    def tell(self) -> bool:
        """Say nothing, and never stop."""
        return False


@contextmanager
def _progress() -> Iterator[_Progress]:
    """Give what tells how far it is, for as long as that matters."""
    progress = _Progress(sys.stderr) if sys.stderr.isatty() else _Silent(sys.stderr)
    try:
        yield progress
    finally:
        progress.wipe()


def _has_colours(to: TextIO) -> bool:
    return to.isatty() and not os.environ.get("NO_COLOR")


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _complain(text: str) -> None:
    print(f"fabric-exporter: {drawing.shown(text)}", file=sys.stderr)  # noqa: T201  # what a command says to its user
