"""Tables of the alerts that fire: of the whole fabric, of a host, of switches and of jobs.

Alerts of one name and one job are one row, with the place if it is one, else with the names of the first two, and the
number of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from panels import FAINT, FULL, HEIGHT, Panel, meaning
from tables import Column, table_of
from training_joins import first_cause, in_words

SEVERITIES = meaning({"critical": ("critical", "red"), "warning": ("warning", "orange")})
ROLES = meaning({"cause": ("alert", "text"), "consequence": ("consequence", FAINT)})

KEY = ("severity", "role", "alertname", "train_job")
"""Labels by which rows are distinguished."""

PLACES = ("host", "switch", "place")
"""Labels that name a place. Several are in `place`: a single host or switch has a board, to which its name links."""

PLURALS: Mapping[str, str] = MappingProxyType({"rail": "rails", "port": "ports", "rank": "ranks"})
"""Labels of parts of a place, and words for several of them, which are counted."""

FIRST_CAUSE = "first_cause"
"""A column of alerts of jobs: the likeliest cause, with its place."""

WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "severity": 80,
        "role": 105,
        "train_job": 80,
        "host": 85,
        "switch": 75,
        "place": 205,
        "rail": 60,
        "port": 100,
        "rank": 60,
        FIRST_CAUSE: 230,
    }
)
"""Widths of columns in pixels; names of alerts have the room that others leave."""

WIDE: Mapping[str, int] = MappingProxyType({**WIDTHS, "train_job": 90, "host": 120, "switch": 90})
"""The same in a panel of the whole width: names of hosts and switches may be long."""


@dataclass(frozen=True, slots=True)
class OfHosts:
    """The alerts of some hosts.

    Attributes:
        hosts: Query for the hosts.
    """

    hosts: str


def firing(
    title: str,
    *matchers: str | OfHosts,
    details: Sequence[str] = (*PLACES, *PLURALS, FIRST_CAUSE),
    width: int,
    height: int = HEIGHT,
    absent: str = "no alert fires",
) -> Panel:
    """Return the table of alerts that fire: critical ones first, causes before consequences, then the oldest.

    Args:
        title: Title of the panel.
        matchers: Further matchers of labels of alerts, or hosts; alerts of any of several ones are shown.
        details: Labels that are shown beside those by which rows are distinguished.
        width: Width of the panel.
        height: Height of the panel.
        absent: Text if no alert fires.
    """
    rows = f"min by (row, {', '.join(KEY)}) ({_alerts(matchers)})"
    return table_of(
        title,
        "Alerts that fire: what is wrong, where, and since when. A consequence is an alert that Alertmanager mutes, as"
        " another one that fires is its cause. Alerts of one name and job are one row, with the places, the oldest"
        " first. The runbook of each is docs/runbooks/ and its name.",
        [
            Column("since", "dateTimeAsIsoNoDateIfToday", f"1000 * {rows}", width=85),
            *([Column("for", "s", f"time() - {rows}", decimals=0, width=70)] if width == FULL else ()),
        ],
        labels=KEY,
        key="row",
        more=[(_detail(matchers, label), (label,)) for label in details],
        worst=("-severity", "-role", "-since"),
        absent=absent,
        width=width,
        height=height,
        colors={"severity": SEVERITIES, "role": ROLES},
        widths={
            name: pixels for name, pixels in (WIDE if width == FULL else WIDTHS).items() if name in (*KEY, *details)
        },
    )


def number_of_rows(matchers: str) -> str:
    """Return the query for the number of rows of the table; 0 only where the rules are loaded, as records show."""
    return f"count(count by (row) ({_alerts([matchers])})) or 0 * count(instance:fabric_exporter_build_info:info{{}})"


def _alerts(matchers: Sequence[str | OfHosts], label: str = "") -> str:
    """Return the query for the times since which alerts fire, as recorded; with a label, for those that have it."""
    with_label = f', {label}!=""' if label else ""
    found = " or ".join(_selected(one, with_label) for one in matchers or ("",))
    return f"({found})" if len(matchers) > 1 else found


def _selected(one: str | OfHosts, with_label: str) -> str:
    """Return the query for the alerts of one selection."""
    if isinstance(one, OfHosts):
        return f'alert:fabric_firing:since{{alertname=~"Fabric.+"{with_label}}} and on (host) {one.hosts}'
    return f'alert:fabric_firing:since{{alertname=~"Fabric.+"{one}{with_label}}}'


def _detail(matchers: Sequence[str | OfHosts], label: str) -> str:
    """Return the query for the value of a label in each row, or the number of its values."""
    if label == FIRST_CAUSE:
        cause = in_words(f"max by (train_job, cause, name, port) ({first_cause('{}')})")
        rows = f"group by (row, train_job) ({_alerts(matchers, 'train_job')})"
        return f"group by (row, {label}) ({rows} * on (train_job) group_left ({label}) {cause})"
    one = f"group by (row, {label}) ({_alerts(matchers, label)}) and on (row) {_values(matchers, label)} == 1"
    if label == "place":
        of_job = "count by (train_job) (host:fabric_nccl_job:info)"
        hosts = f"count by (row, train_job) (group by (row, train_job, host) ({_alerts(matchers, 'host')}))"
        whole = f"({hosts} > 1) == on (train_job) group_left () {of_job}"
        several = [names(_alerts(matchers, place), place) for place in PLACES]
        parts = [f'label_replace({whole}, "place", "all hosts", "", "")', *several, one]
    elif label in PLACES:
        parts = [one]
    else:
        parts = [one, _number(matchers, label)]
    return " or on (row) ".join(parts)


def _values(matchers: Sequence[str | OfHosts], label: str) -> str:
    """Return the query for the number of values of a label in each row."""
    return f"count by (row) (group by (row, {label}) ({_alerts(matchers, label)}))"


def _number(matchers: Sequence[str | OfHosts], label: str) -> str:
    """Return the query for the rows with several values of a label, with the number of these in it."""
    number = f'count_values by (row) ("number", {_values(matchers, label)} > 1)'
    return f'label_replace({number}, "{label}", "$1 {PLURALS[label]}", "number", "(.+)")'


def names(alerts: str, label: str) -> str:
    """Return the query for the rows with several values of a label, with names in `place`: a, b and 2 more.

    The oldest come first. PromQL joins labels of series that it has paired, not those of any number of series.

    Args:
        alerts: Query for the times of alerts, with the label and `row`.
        label: The label.
    """
    each = f"min by (row, {label}) ({alerts})"
    first = f"bottomk by (row) (1, {each})"
    second = f"bottomk by (row) (1, {each} unless on (row, {label}) {first})"
    named = f'label_replace({first}, "first", "$1", "{label}", "(.+)")'
    others = f'count_values by (row) ("number", count by (row) (group by (row, {label}) ({alerts})) - 2)'
    counted = f'label_replace({others}, "more", " and $1 more", "number", "([1-9].*)")'
    paired = f"{second} * on (row) group_left (first) {named} * on (row) group_left (more) {counted}"
    return f'label_join(label_join({paired}, "place", ", ", "first", "{label}"), "place", "", "place", "more")'
