"""The page for people at `/`: what this daemon reads, and how well that goes.

One self-contained document: no scripts, no external files, readable on a phone and in the dark.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape

_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #59636e; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #9198a1; --good: #3fb950; --bad: #f85149; }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
p { color: var(--soft); margin: .25rem 0 1rem; }
nav a { display: inline-block; margin: 0 1rem 1rem 0; padding: .25rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
.n { font-variant-numeric: tabular-nums; text-align: right; }
td.n { white-space: nowrap; }
.up { color: var(--good); } .down { color: var(--bad); font-weight: 600; }
small { color: var(--soft); font-weight: 400; }
@media (max-width: 30rem) { body { padding: .75rem; } th, td { padding: .4rem .2rem; font-size: .875rem; } }
"""

MAX_WHY = 400
"""Characters of what is said of one source that is down."""

_COLUMNS = (("Source", ""), ("Target", ""), ("State", ""), ("Last success", "n"), ("Rows", "n"), ("Failures", ""))
"""Heads, and the class of those that stand over numbers."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source as the page shows it.

    `target` is the device or address, "" for this host. `up` is None before the first reading, and while there is
    nothing to read. `age` is the time since the last success in seconds, None when there was none yet. `failures`
    counts by reason. `why` says why it is down, in words.
    """

    name: str
    target: str
    up: bool | None
    age: float | None
    rows: int
    failures: Mapping[str, int] = field(default_factory=dict)
    why: str = ""


def page(*, name: str, version: str, telemetry_path: str, sources: Iterable[SourceStatus], summary: str = "") -> str:
    """Write the page. All text is escaped: names of switches and ports come from the network."""
    title, path = escape(name), escape(telemetry_path)
    rows = "".join(map(_row, sources))
    table = _table(rows) if rows else "<p>No source is active.</p>"
    links = "".join(
        f'<a href="{target}">{text}</a>'
        for target, text in ((path, "Metrics"), ("/-/healthy", "Healthy"), ("/-/ready", "Ready"))
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<h1>{title}</h1><p>version {escape(version)}{' · ' if summary else ''}{escape(summary)}</p>\n"
        f"<nav>{links}</nav>\n{table}\n</body></html>\n"
    )


def _table(rows: str) -> str:
    """Put the head on the rows; the wrapper scrolls, so that the page does not on a narrow screen."""
    heads = "".join(f'<th scope="col" class="{look}">{head}</th>' for head, look in _COLUMNS)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(source: SourceStatus) -> str:
    """Write one source; the state is a word as well as a colour."""
    state, look = {True: ("up", "up"), False: ("down", "down"), None: ("nothing found", "")}[source.up]
    failures = ", ".join(f"{reason}: {count}" for reason, count in sorted(source.failures.items()) if count)
    return (
        f"<tr><td>{escape(source.name)}</td><td>{escape(source.target) or 'this host'}</td>"
        f'<td class="{look}">{state}{_why(source.why)}</td><td class="n">{_age(source.age)}</td>'
        f'<td class="n">{source.rows}</td><td>{escape(failures) or "none"}</td></tr>'
    )


def _why(text: str) -> str:
    """Write why a source is down; agents can say much."""
    return f"<br><small>{escape(text[:MAX_WHY])}</small>" if text else ""


def _age(seconds: float | None) -> str:
    """Write a time span in the unit that a reader would choose."""
    if seconds is None or not math.isfinite(seconds):
        return "never"
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.1f} s ago"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.1f} h ago"
