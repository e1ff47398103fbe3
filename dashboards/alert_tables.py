"""Tables of the alerts that fire: of the whole fabric, of a host, of switches and of jobs.

Alerts about several rails, ports or ranks of one place are one row, with their number.
"""

from collections.abc import Sequence

from panels import HEIGHT, Panel, meaning
from tables import Column, table_of

SEVERITIES = meaning({"critical": ("critical", "red"), "warning": ("warning", "orange")})

WIDTHS = {
    "severity": 85,
    "host": 80,
    "switch": 75,
    "train_job": 75,
    "component": 85,
    "rail": 50,
    "port": 85,
    "rank": 50,
}
"""Widths of columns in pixels; names of alerts have the room that others leave."""

PLACE = ("severity", "alertname", "host", "switch", "train_job", "component")
DETAILS = ("rail", "port", "rank")
"""Labels that are shown where an alert has one of each."""


def firing(
    title: str,
    matchers: str = "",
    *,
    place: Sequence[str] = PLACE,
    width: int,
    height: int = HEIGHT,
) -> Panel:
    """Return the table of alerts that fire, the critical ones first.

    Args:
        title: Title of the panel.
        matchers: Further matchers of labels of alerts.
        place: Labels by which rows are distinguished.
        width: Width of the panel.
        height: Height of the panel.
    """
    alerts = _alerts(matchers)
    by = ", ".join(place)
    number = f"count by ({by}) (max by ({by}, {', '.join(DETAILS)}) ({alerts}))"
    return table_of(
        title,
        "Alerts that fire: what is wrong, where, and for how long. Alertmanager mutes consequences of others, which are"
        " shown here. Alerts about several rails, ports or ranks of one place are one row, with their number. The"
        " runbook of each is docs/runbooks/ and its name.",
        [
            Column("places", "none", number, decimals=0, width=60),
            Column("for", "s", f"max by ({by}) ({alerts})", decimals=0, width=75),
        ],
        labels=place,
        more=(f"{alerts} and on ({by}) {number} == 1", DETAILS),
        worst=("-severity",),
        absent="no alert fires",
        width=width,
        height=height,
        colors={"severity": SEVERITIES},
        widths={name: pixels for name, pixels in WIDTHS.items() if name in (*place, *DETAILS)},
    )


def _alerts(matchers: str) -> str:
    """Return the query for the seconds for which alerts that fire have been active.

    `component` locates those that have no host, switch or job. Of hosts `port` is left out: their rail is enough.
    """
    chosen = f'alertname=~"Fabric.+", severity=~"critical|warning"{matchers}'
    alerts = (
        f'(time() - ALERTS_FOR_STATE{{{chosen}}} and ignoring (alertstate) ALERTS{{alertstate="firing", {chosen}}})'
    )
    for label in ("instance", "target", "leaf", "spine", "node_name"):
        alerts = f'label_replace({alerts}, "component", "$1", "{label}", "(.+)")'
    alerts = f'label_join({alerts}, "located", "", "host", "switch", "train_job")'
    alerts = f'label_replace({alerts}, "component", "", "located", ".+")'
    return f'label_replace({alerts}, "port", "", "host", ".+")'
