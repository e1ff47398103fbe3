"""What reports of pictures find, and which of that is expected by exceptions.yml."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from exporter.config.errors import UserError

LINE = re.compile(r"(ok|EMPTY|OUT OF SIGHT|ERROR) +(\w+) +(.*?) \| (\d+) \w+(?: \| (.*))?")
"""A panel in a report: its state, type and title, the number of what it shows, and what is out of sight."""

EMPTY = "EMPTY"

STATES = ("healthy", "faults")

KEYS = {"board", "panel", "found", "in", "reason"}


class Finding(NamedTuple):
    """One thing that a reader of a picture cannot see: the panel, and what it is in words."""

    panel: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a picture shows.

    Attributes:
        board: Name of the board's file, without its ending.
        state: Name of the cluster.
        panels: Number of panels.
        findings: What is empty or out of sight.
    """

    board: str
    state: str
    panels: int
    findings: tuple[Finding, ...]

    @classmethod
    def read(cls, path: Path, board: str, state: str) -> Self:
        """Read a report that take.mjs wrote.

        Raises:
            UserError: It cannot be read.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; take the picture again") from None
        panels = [found for line in lines if (found := LINE.fullmatch(line))]
        findings = [Finding(one[3], text) for one in panels for text in _texts(one)]
        return cls(board, state, len(panels), tuple(findings))


def _texts(panel: re.Match[str]) -> list[str]:
    state, words = panel[1], panel[5] or ""
    if state == "ERROR":
        return [f"ERROR: {words}"]
    return [*([EMPTY] if state == EMPTY else []), *(words.split("; ") if words else [])]


@dataclass(frozen=True, slots=True)
class Expected:
    """What exceptions.yml has about one panel.

    Attributes:
        board: Name of the board's file, without its ending.
        panel: Title of the panel.
        found: Part of the text of findings, such as EMPTY or "rows in sight".
        states: Names of the clusters.
        reason: Why.
    """

    board: str
    panel: str
    found: str
    states: tuple[str, ...]
    reason: str

    def covers(self, report: Report, finding: Finding) -> bool:
        """Return whether it is about a finding."""
        place = (self.board, self.panel) == (report.board, finding.panel)
        return place and report.state in self.states and self.found in finding.text


class Summary(NamedTuple):
    """The number of findings that no exception covers, and all in lines of text."""

    problems: int
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The entries of exceptions.yml."""

    entries: tuple[Expected, ...] = field(default=())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file.

        Raises:
            UserError: An entry is invalid.
        """
        try:
            listed = yaml.safe_load(path.read_text(encoding="utf-8")) or []
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f"{path.name}: {error}") from None
        if not isinstance(listed, list):
            raise UserError(f"{path.name} is not a list of entries")
        return cls(tuple(one for number, given in enumerate(listed, start=1) for one in _entries(number, given)))

    def summary(self, reports: Iterable[Report]) -> Summary:
        """Compare findings with the exceptions."""
        lines, count, used = [], 0, set[Expected]()
        given = list(reports)
        for report in given:
            covering = [
                (one, [entry for entry in self.entries if entry.covers(report, one)]) for one in report.findings
            ]
            used |= {entry for _, entries in covering for entry in entries}
            new = [one for one, entries in covering if not entries]
            count += len(new)
            known = len(report.findings) - len(new)
            lines.append(
                f"{report.board}, {report.state}: {report.panels} panels, {known} exceptions, {len(new)} problems"
            )
            lines += [f"  {one.panel}: {one.text}" for one in new]
        taken = {(one.board, state) for one in self.entries for state in one.states} & {
            (r.board, r.state) for r in given
        }
        lines += _unused([one for one in self.entries if one not in used and (one.board, one.states[0]) in taken])
        return Summary(count, lines)


def _unused(entries: Sequence[Expected]) -> list[str]:
    return [f"exceptions.yml: not needed now: {one.board}, {one.panel}, {one.found}" for one in entries]


def _entries(number: int, given: Any) -> Iterator[Expected]:  # noqa: ANN401  # whatever YAML has there
    """Yield an entry for each of its panels."""
    place = f"exceptions.yml: entry {number}"
    if not isinstance(given, dict) or not set(given) <= KEYS or not KEYS - {"in"} <= set(given):
        raise UserError(f"{place} needs the keys board, panel, found and reason; `in` is optional")
    states = given.get("in", list(STATES))
    if not isinstance(states, list) or not states or not set(states) <= set(STATES):
        raise UserError(f"{place}: `in` is a list of {' and '.join(STATES)}, not {states}")
    panels = given["panel"] if isinstance(given["panel"], list) else [given["panel"]]
    board, found, reason = texts = [given[key] for key in ("board", "found", "reason")]
    if not panels or not all(isinstance(one, str) and one.strip() for one in (*texts, *panels)):
        raise UserError(f"{place}: board, found and reason are texts, panel is a title or a list of titles")
    for panel in panels:
        yield Expected(board, panel, found, tuple(states), reason)
