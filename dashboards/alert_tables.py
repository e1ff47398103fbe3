"""Tables of the alerts that fire or are pending: of the whole fabric, of a host, of switches and of jobs.

An alert is pending from the begin of its trouble on, as tiles are red from then on. Alerts of one name and one job are
one row, with the place if it is one, else with the names of the first two, and the number of others.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from grafana_foundation_sdk.models import dashboard as model
from panels import FAINT, FULL, HEIGHT, Panel, meaning, number
from tables import Column, table_of
from training_joins import ANY_TARGET, LIKELY, STEPS_NOT_NETWORK, STEPS_OF_ALL, SYMPTOMS, first_cause, in_words

SEVERITIES = meaning(
    {
        "critical": ("critical", "red"),
        "critical pending": ("critical", "#b07272"),
        "warning": ("warning", "orange"),
        "warning pending": ("warning", "#a58a66"),
    }
)
"""Of an alert that is pending the colour is dim: it does not fire yet, and may never."""

ROLES = meaning({"cause": ("alert", "text"), "consequence": ("consequence", FAINT), "pending": ("pending", FAINT)})

KEY = ("severity", "role", "alertname", "train_job")
"""Labels by which rows are distinguished."""

PLACES = ("host", "switch", "place")
"""Labels that name a place. Several are in `place`: a single host or switch has a board, to which its name links."""

PARTS: Mapping[str, tuple[str, str]] = MappingProxyType({"host": ("rail", " rail "), "switch": ("port", " ")})
"""Labels of a part of a place, and the text between both."""

PLURALS: Mapping[str, str] = MappingProxyType({"rail": "rails", "device": "devices", "port": "ports", "rank": "ranks"})
"""Labels of parts of a place, and words for several of them, which are counted."""

WITHOUT_PORT = meaning(
    {
        "compute": ("computing of a late rank", "text"),
        "process": ("a process went no further", "text"),
        "work": ("uneven work", "text"),
    }
)
"""Causes other than ports."""

IN_WORDS = [
    model.DynamicConfigValue(id_val="mappings", value=[WITHOUT_PORT]),
    model.DynamicConfigValue(
        id_val="thresholds", value={"mode": "absolute", "steps": [{"value": None, "color": "text"}]}
    ),
]
"""Shows these, and any other text, without a colour: Grafana's own is green."""

FIRST_CAUSE = "first_cause"
"""A column of alerts of jobs that are no causes themselves: the likeliest cause, if it is likely, with its place."""

OF_BOTH_ENDS = "FabricLink(Down|Flapping|Degraded)|FabricPortsMissing"
"""Alerts of hosts about a link that has one at its switch too, for one trouble."""

AT_HOST = (
    "label_replace(label_replace("
    f'alert:fabric_active:since{{alertname=~"{OF_BOTH_ENDS}", layer=~"rdma|nic", rail!=""}},'
    ' "layer", "switch", "", ""), "alertname", "FabricLinkDown", "alertname", "FabricPortsMissing")'
)
"""These, with the name and layer of that of the switch. The row of the host has the switch and its port too."""

DETAILS = ("host", "rail", "device", "switch", "port", "place", "rank", FIRST_CAUSE)

WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "severity": 80,
        "role": 105,
        "train_job": 80,
        "host": 85,
        "switch": 75,
        "place": 240,
        "rail": 60,
        "device": 80,
        "port": 105,
        "rank": 60,
        FIRST_CAUSE: 230,
    }
)
"""Widths of columns in pixels; names of alerts have the room that others leave."""

WIDE: Mapping[str, int] = MappingProxyType({**WIDTHS, "train_job": 90, "host": 120, "switch": 90, FIRST_CAUSE: 265})
"""The same in a panel of the whole width: names of hosts and switches may be long."""


HIDDEN = 2
"""Width of the number of rows that are out of sight."""

_NONE = "0 * count(instance:fabric_exporter_build_info:info{})"
"""0 rows, where the rules are loaded."""


class Alerts(NamedTuple):
    """Some of all alerts.

    Attributes:
        matchers: Further matchers of their labels.
        among: What follows the selector in the query: a join that leaves some of them out.
    """

    matchers: str = ""
    among: str = ""

    def of(self, matchers: str) -> "Alerts":
        """Return those that match further matchers too."""
        return self._replace(matchers=f"{self.matchers}{matchers}")


def firing(
    title: str,
    *alerts: str | Alerts,
    details: Sequence[str] = DETAILS,
    width: int,
    height: int = HEIGHT,
    absent: str = "no alert fires or is pending",
) -> Panel:
    """Return the table of alerts: causes before consequences before what is pending, of each critical ones, the oldest.

    So a consequence, which Alertmanager mutes, never takes the place of another trouble.

    Args:
        title: Title of the panel.
        alerts: Which alerts, or further matchers of their labels; those of any of several ones are shown.
        details: Labels that are shown beside those by which rows are distinguished.
        width: Width of the panel.
        height: Height of the panel.
        absent: Text if there is no alert.
    """
    which = _which(alerts)
    fire, pend = (
        f"min by (row, {', '.join(KEY)}) ({_alerts([each.of(_pending(one)) for each in which])})" for one in ("!=", "=")
    )
    rows = f'({fire} or label_join({pend}, "severity", " ", "severity", "role"))'
    table = table_of(
        title,
        "What is wrong, where, and since when: the time at which it began. One that is pending fires if it lasts. A"
        " consequence is an alert that Alertmanager mutes, as another one that fires is its cause. The port is that of"
        " the switch. Alerts of one name and job are one row, with the places, the oldest first. The runbook of each is"
        " docs/runbooks/ and its name.",
        [
            Column("since", "dateTimeAsIsoNoDateIfToday", f"1000 * {rows}", width=85),
        ],
        labels=KEY,
        key="row",
        more=[(_detail(which, label), (label,)) for label in details],
        worst=("-role", "-severity", "-since"),
        absent=absent,
        width=width,
        height=height,
        colors={"severity": SEVERITIES, "role": ROLES},
        widths={
            name: pixels
            for name, pixels in (WIDE if width >= FULL - HIDDEN else WIDTHS).items()
            if name in (*KEY, *details)
        },
    )
    return table.override_by_name(FIRST_CAUSE, IN_WORDS) if FIRST_CAUSE in details else table


def number_of_rows(matchers: str) -> str:
    """Return the query for the number of rows that fire; 0 only where the rules are loaded, as records show."""
    return f"{_rows([Alerts(matchers).of(_pending('!='))])} or {_NONE}"


def hidden(*alerts: str | Alerts, shown: int, height: int = 3) -> Panel:
    """Return the number of rows of a table of alerts that are out of sight.

    Args:
        alerts: Those of the table.
        shown: Number of rows that fit.
        height: Height of the panel.
    """
    return number(
        "Hidden",
        "Rows of the table of alerts that are out of sight: scroll in it. Critical alerts that are no consequence"
        " come first, what is pending last.",
        f"clamp_min({_rows(_which(alerts))} - {shown}, 0) or {_NONE}",
        unit="suffix: rows",
        width=HIDDEN,
        height=height,
        absent="no rules",
    )


def _which(alerts: Sequence[str | Alerts]) -> list[Alerts]:
    return [Alerts(one) if isinstance(one, str) else one for one in alerts] or [Alerts()]


def _pending(sign: str) -> str:
    """Return the matcher of alerts that are pending, or fire."""
    return f', role{sign}"pending"'


def _rows(which: Sequence[Alerts]) -> str:
    """Return the query for the number of rows of a table of alerts; none without alerts."""
    return f"count(count by (row) ({_alerts(which)}))"


def _alerts(which: Sequence[Alerts], label: str = "") -> str:
    """Return the query for the recorded begin of each alert; with a label, for those that have it.

    Of a link that has an alert at both of its ends, that of the switch is left out.
    """
    with_label = f', {label}!=""' if label else ""
    found = " or ".join(
        f'alert:fabric_active:since{{alertname=~"Fabric.+"{one.matchers}{with_label}}}{one.among}' for one in which
    )
    return f"(({found}) unless on (layer, alertname, host, rail) {AT_HOST})"


def _detail(which: Sequence[Alerts], label: str) -> str:
    """Return the query for the value of a label in each row, or the number of its values."""
    if label == FIRST_CAUSE:
        found = in_words(f"max by (train_job, cause, name, port) ({first_cause(ANY_TARGET)} >= {LIKELY})")
        cause = f'({found} or on (train_job) label_replace({STEPS_OF_ALL}, "{label}", "{STEPS_NOT_NETWORK}", "", ""))'
        of_jobs = [one.of(f', alertname=~"{SYMPTOMS}"') for one in which]
        rows = f"group by (row, train_job) ({_alerts(of_jobs, 'train_job')})"
        return f"group by (row, {label}) ({rows} * on (train_job) group_left ({label}) {cause})"
    one = f"group by (row, {label}) ({_alerts(which, label)}) and on (row) {_values(which, label)} == 1"
    if label == "place":
        of_job = "count by (train_job) (host:fabric_nccl_job:info)"
        hosts = f"count by (row, train_job) (group by (row, train_job, host) ({_alerts(which, 'host')}))"
        whole = f"({hosts} > 1) == on (train_job) group_left () {of_job}"
        several = [_names(which, place) for place in PLACES]
        parts = [f'label_replace({whole}, "place", "all hosts", "", "")', *several, one]
    elif label in PLACES:
        parts = [one]
    else:
        parts = [one, _number(which, label)]
    return " or on (row) ".join(parts)


def _values(which: Sequence[Alerts], label: str) -> str:
    """Return the query for the number of values of a label in each row."""
    return f"count by (row) (group by (row, {label}) ({_alerts(which, label)}))"


def _number(which: Sequence[Alerts], label: str) -> str:
    """Return the query for the rows with several values of a label, with the number of these in it."""
    number = f'count_values by (row) ("number", {_values(which, label)} > 1)'
    return f'label_replace({number}, "{label}", "$1 {PLURALS[label]}", "number", "(.+)")'


def _names(which: Sequence[Alerts], label: str) -> str:
    """Return the query for the rows with several places, with names in `place`: a, b and 2 more.

    If there are two, they are named with their parts. The oldest come first. PromQL joins labels of series that it has
    paired, not those of any number of series.
    """
    alerts = _alerts(which, label)
    whole = f'label_replace({alerts}, "name", "$1", "{label}", "(.+)")'
    if label not in PARTS:
        return pairs(whole)
    part, word = PARTS[label]
    joined = f'label_join({alerts}, "name", "{word}", "{label}", "{part}")'
    parts = f'label_replace({joined}, "name", "$1", "name", "(.+){word}")'
    two = f"count by (row) (count by (row, name) ({parts})) == 2"
    return f"{pairs(parts)} and on (row) {two} or on (row) {pairs(whole)}"


def pairs(named: str) -> str:
    """Return the query for the rows with several values of `name`, with the first two in `place`."""
    each = f"min by (row, name) ({named})"
    first = f"bottomk by (row) (1, {each})"
    second = f"bottomk by (row) (1, {each} unless on (row, name) {first})"
    head = f'label_replace({first}, "first", "$1", "name", "(.+)")'
    others = f'count_values by (row) ("number", count by (row) ({each}) - 2)'
    counted = f'label_replace({others}, "more", " and $1 more", "number", "([1-9].*)")'
    paired = f"{second} * on (row) group_left (first) {head} * on (row) group_left (more) {counted}"
    return f'label_join(label_join({paired}, "place", ", ", "first", "name"), "place", "", "place", "more")'
