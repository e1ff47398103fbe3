"""Tables of the alerts that fire: of the whole fabric, of a host, of switches and of jobs.

Alerts of one name and one job are one row, with the place if it is one, else with the number of places.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from panels import FAINT, HEIGHT, Panel, meaning
from tables import Column, table_of

SEVERITIES = meaning({"critical": ("critical", "red"), "warning": ("warning", "orange")})
ROLES = meaning({"cause": ("cause", "text"), "consequence": ("consequence", FAINT)})

KEY = ("severity", "role", "alertname", "train_job")
"""Labels by which rows are distinguished."""

PLURALS: Mapping[str, str] = MappingProxyType(
    {
        "host": "hosts",
        "switch": "switches",
        "place": "places",
        "rail": "rails",
        "port": "ports",
        "rank": "ranks",
    }
)
"""Labels of which a row has the value if all its alerts have the same, and words for several values."""

PLACES = ("host", "switch", "place")
"""Of these, several are counted in `place`: a host or a switch has a board, to which its name links."""

WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "severity": 90,
        "role": 105,
        "train_job": 80,
        "host": 85,
        "switch": 75,
        "place": 95,
        "rail": 60,
        "port": 100,
        "rank": 60,
    }
)
"""Widths of columns in pixels; names of alerts have the room that others leave."""


def firing(
    title: str, matchers: str = "", *, details: Sequence[str] = tuple(PLURALS), width: int, height: int = HEIGHT
) -> Panel:
    """Return the table of alerts that fire: critical ones first, causes before consequences, then the oldest.

    Args:
        title: Title of the panel.
        matchers: Further matchers of labels of alerts.
        details: Labels that are shown beside those by which rows are distinguished.
        width: Width of the panel.
        height: Height of the panel.
    """
    rows = _rows(matchers, details)
    labels = (*KEY, *details)
    return table_of(
        title,
        "Alerts that fire: what is wrong, where, and since when. A consequence is an alert that Alertmanager mutes, as"
        " another one that fires is its cause. Alerts of one name and job are one row, with the number of places. The"
        " runbook of each is docs/runbooks/ and its name.",
        [
            Column("since", "dateTimeAsIsoNoDateIfToday", f"1000 * {rows}", width=85),
            Column("for", "s", f"time() - {rows}", decimals=0, width=70),
        ],
        labels=labels,
        worst=("-severity", "-role", "-since"),
        absent="no alert fires",
        width=width,
        height=height,
        colors={"severity": SEVERITIES, "role": ROLES},
        widths={name: pixels for name, pixels in WIDTHS.items() if name in labels},
    )


def number_of_rows(matchers: str) -> str:
    """Return the query for the number of rows of the table; 0 only where the rules are loaded, as records show."""
    return f"count(count by ({_BY}) ({_alerts(matchers)})) or 0 * count(instance:fabric_exporter_build_info:info{{}})"


_BY = ", ".join(KEY)


def _alerts(matchers: str, label: str = "") -> str:
    """Return the query for the times since which alerts fire, as recorded; with a label, for those that have it."""
    with_label = f', {label}!=""' if label else ""
    return f'alert:fabric_firing:since{{alertname=~"Fabric.+"{matchers}{with_label}}}'


def _rows(matchers: str, details: Sequence[str]) -> str:
    """Return the query for the time since which the first alert of each row fires, with all labels of the row."""
    rows = f"min by ({_BY}) ({_alerts(matchers)})"
    for label in details:
        rows += f" * on ({_BY}) group_left ({label}) ({_detail(matchers, label)})"
    return f"({rows})"


def _detail(matchers: str, label: str) -> str:
    """Return the query for 1 for each row, with a label: its value, the number of its values, or nothing."""
    parts = [f"group by ({_BY}, {label}) ({_alerts(matchers, label)}) and on ({_BY}) {_values(matchers, label)} == 1"]
    if label == "place":
        of_job = "count by (train_job) (host:fabric_nccl_job:info)"
        whole = f"({_values(matchers, 'host')} > 1) == on (train_job) group_left () {of_job}"
        numbers = [_number(matchers, one, "place") for one in PLACES]
        parts = [f'label_replace(0 * ({whole}) + 1, "place", "all hosts", "", "")', *numbers, *parts]
    elif label not in PLACES:
        parts.append(_number(matchers, label, label))
    parts.append(f"group by ({_BY}) ({_alerts(matchers)})")
    return f" or on ({_BY}) ".join(parts)


def _values(matchers: str, label: str) -> str:
    """Return the query for the number of values of a label in each row."""
    return f"count by ({_BY}) (group by ({_BY}, {label}) ({_alerts(matchers, label)}))"


def _number(matchers: str, label: str, shown: str) -> str:
    """Return the query for the rows with several values of a label, with the number of these as a label."""
    number = f'count_values by ({_BY}) ("number", {_values(matchers, label)} > 1)'
    return f'label_replace({number}, "{shown}", "$1 {PLURALS[label]}", "number", "(.+)")'
