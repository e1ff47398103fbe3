"""The status page at `/`: the sources of this daemon and their state.

One HTML document without scripts and external files, for small screens and dark mode too.
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

MAX_ERROR_LENGTH = 400
"""Characters shown of the error of a source that is down."""

_COLUMNS = (("Source", ""), ("Target", ""), ("State", ""), ("Last success", "n"), ("Rows", "n"), ("Failures", ""))
"""Heads of columns, and the CSS class of those with numbers."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source as the page shows it.

    Attributes:
        name: Name of the source.
        target: Device or address; empty for this host.
        up: None before the first read, and while no device is found.
        age: Seconds since the last success; None where there was none.
        rows: Exported rows.
        failures: Counts by reason.
        error: Why the source is down.
    """

    name: str
    target: str
    up: bool | None
    age: float | None
    rows: int
    failures: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


def page(*, name: str, version: str, telemetry_path: str, sources: Iterable[SourceStatus], summary: str = "") -> str:
    """Return the HTML. All text is escaped: names of switches and ports come from the network."""
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
    """Return the table in a wrapper that scrolls, so that the page does not on a narrow screen."""
    heads = "".join(f'<th scope="col" class="{style}">{head}</th>' for head, style in _COLUMNS)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(source: SourceStatus) -> str:
    """Return the row of a source; its state is shown as a word and a colour."""
    state, style = {True: ("up", "up"), False: ("down", "down"), None: ("nothing found", "")}[source.up]
    failures = ", ".join(f"{reason}: {count}" for reason, count in sorted(source.failures.items()) if count)
    return (
        f"<tr><td>{escape(source.name)}</td><td>{escape(source.target) or 'this host'}</td>"
        f'<td class="{style}">{state}{_error(source.error)}</td><td class="n">{_age(source.age)}</td>'
        f'<td class="n">{source.rows}</td><td>{escape(failures) or "none"}</td></tr>'
    )


def _error(text: str) -> str:
    return f"<br><small>{escape(text[:MAX_ERROR_LENGTH])}</small>" if text else ""  # texts of agents can be long


def _age(seconds: float | None) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds is None or not math.isfinite(seconds):
        return "never"
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.1f} s ago"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min ago"
    return f"{seconds / 3600:.1f} h ago"
