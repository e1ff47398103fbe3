"""Queries for the likely causes of the delay of each job, as rows of a table.

A collector has them, with a confidence. Of a job that may be delayed by the network and has none that is likely, its
alerts and those about ports of its hosts are listed too, one row for each name; if none of these fires, those that are
pending. Of a job that waits for ranks they are those of the hosts of these. If there are none either, that is a
row too, so that it is not mistaken for a good sign.
"""

from alert_tables import pairs
from joins import PORTS_OF_A_DAY, SWITCH_PORTS
from training_joins import (
    ACTIVE,
    ANY_TARGET,
    DELAYED,
    HOST,
    JOBS,
    JUDGED_SINCE,
    LIKELY,
    MAY_BE_NETWORK,
    OWN_ALERTS,
    SINCE,
    STEPS_ALONE,
    STEPS_NOT_NETWORK,
    SYMPTOMS,
    UNJUDGED,
    first_cause,
    in_words,
)

ROW = "row"
"""The label by which rows are distinguished."""

_KNOWN = f'{JOBS[:-1]}, cause!="unknown"}}'
_CONFIDENCE = f"fabric_nccl_cause_confidence{_KNOWN}"
_IS_SWITCH = f'label_replace(group by (switch) (fabric_switch_up{ANY_TARGET}), "name", "$1", "switch", "(.+)")'
_COLLECTORS = f"on () count(fabric_collector_connected{ANY_TARGET})"


def _names(series: str, label: str) -> str:
    """Return the query for the rows with several values of a label, with the first two of them in `place`."""
    return pairs(f'label_replace({series}, "name", "$1", "{label}", "(.+)")')


def _rows(causes: str) -> str:
    return f'label_join({causes}, "{ROW}", "/", "train_job", "cause", "name", "port")'


_BY_PORT = "max by (train_job, cause, name, port, peer, peer_port)"
FOUND = _rows(f"{_BY_PORT} ({_CONFIDENCE})")
"""The causes that collectors find, with their confidence."""


_OF_PORTS = 'layer=~"rdma|nic|pci|switch", host!="", train_job=~"$train_job"'
_KEPT = "min by (train_job, severity, alertname, host, switch, place)"


def _that_fire(matchers: str = "") -> str:
    """Return the query for the other alerts of jobs, and those about ports of their hosts."""
    own = f'{OWN_ALERTS[:-1]}, alertname!~"{SYMPTOMS}"{matchers}}}'
    of_hosts = f'train_job:fabric_firing:since{{train_job=~"$train_job"{matchers}}}'
    return _row_of_alert(f"({_KEPT} ({own}) or {of_hosts})")


def _that_are_pending(matchers: str = "") -> str:
    """Return the query for alerts about ports of the hosts of jobs without any that fires."""
    pending = f'{_KEPT} ({ACTIVE}{{role="pending", {_OF_PORTS}{matchers}}})'
    return _row_of_alert(f"({pending} unless on (train_job) train_job:fabric_firing:since)", " pending")


def _every_alert(matchers: str = "") -> str:
    return f"({_that_fire(matchers)} or {_that_are_pending(matchers)})"


def _row_of_alert(alerts: str, state: str = "") -> str:
    named = f'label_replace({alerts}, "cause", "$1{state}", "alertname", "(.+)")'
    return f'label_join({named}, "{ROW}", "/", "train_job", "cause")'


_LATE_HOSTS = f"group by (train_job, host) ((fabric_nccl_straggler{JOBS} == 1) * {HOST})"


def _of_concern(alerts: str) -> str:
    """Return the query for those of jobs that the network may delay, and of hosts of late ranks."""
    return f"({alerts} and on (train_job) {MAY_BE_NETWORK} or {alerts} and on (train_job, host) {_LATE_HOSTS})"


_LIKELY = f"({_CONFIDENCE} >= {LIKELY})"
_ALERTS = f"{_of_concern(_every_alert())} unless on (train_job) {_LIKELY}"
"""Those of jobs that have no likely causes."""


def _ports_of_alerts(labels: str, matchers: str = "") -> str:
    """Return the query for labels of the port of each row of an alert that is about one port."""
    firing, pending = (f'{ACTIVE}{{role="{role}", {_OF_PORTS}{matchers}}}' for role in ("cause", "pending"))
    either = f"({_row_of_alert(firing)} or {_row_of_alert(pending, ' pending')})"
    port = f'label_replace({either}, "switch_port", "$1", "port", "(.+)")'
    one = f"group by ({ROW}, {labels}) ({port})"
    return f"({_single(one)} and on ({ROW}) ({_ALERTS}))"


def _of_one(label: str) -> str:
    """Return the query for the alerts with one value of a label."""
    values = f"group by ({ROW}, {label}) ({_with(label)})"
    return f"({_single(values)})"


def _single(values: str) -> str:
    """Return the query for the rows that have one series of a query."""
    return f"{values} and on ({ROW}) count by ({ROW}) ({values}) == 1"


def _with(label: str) -> str:
    return _every_alert(f', {label}!=""')


def _places() -> str:
    """Return the query for the names of the hosts or switches of alerts that several have, else for their place."""
    of_job = "count by (train_job) (host:fabric_nccl_job:info)"
    count = f"count by ({ROW}, train_job) (group by ({ROW}, train_job, host) ({_with('host')}))"
    whole = f'label_replace(({count} > 1) == on (train_job) group_left () {of_job}, "place", "all hosts", "", "")'
    several = [_names(_with(label), label) for label in ("host", "switch")]
    return f"({f' or on ({ROW}) '.join([whole, *several, _of_one('place')])})"


_RANKS = (
    f"(label_replace(-1 * fabric_nccl_straggler_loss_ratio{JOBS} and fabric_nccl_straggler{JOBS} == 1,"
    ' "late", "rank $1", "rank", "(.+)") * on (train_job) group_left (row) '
    + _rows(f'group by (train_job, cause) (fabric_nccl_cause_confidence{JOBS[:-1]}, cause=~"compute|process"}})')
    + ")"
)
"""Ranks that are late or went no further, the latest first, in the rows of causes that are theirs."""


def _places_of_ranks() -> str:
    one = f"({_single(f'group by ({ROW}, late) ({_RANKS})')})"
    changing = _rows(f'group by (train_job, cause) (fabric_nccl_cause_confidence{JOBS[:-1]}, cause="work"}})')
    return " or ".join(
        [
            _names(_RANKS, "late"),
            f'label_replace({one}, "place", "$1", "late", "(.+)")',
            f'label_replace({changing}, "place", "changing ranks", "", "")',
        ]
    )


def _none(text: str, condition: str) -> str:
    """Return the query for the rows of delayed jobs without a cause."""
    without = f"unless on (train_job) {_CONFIDENCE} unless on (train_job) ({_ALERTS})"
    return _without_place(f"({SINCE} and on (train_job) {DELAYED} {condition} {without})", text)


def _without_place(jobs: str, text: str) -> str:
    return f'label_join(label_replace({jobs}, "cause", "{text}", "", ""), "{ROW}", "/", "train_job")'


def _renamed(causes: str, **labels: str) -> str:
    """Copy labels, each to the name before it; of a port of a device the name of the device."""
    for new, old in labels.items():
        pattern = "(.+?)(:[0-9]+)?" if new == "device" else "(.+)"
        causes = f'label_replace({causes}, "{new}", "$1", "{old}", "{pattern}")'
    return causes


_NAMED = _rows(f'{_BY_PORT} ({_CONFIDENCE[:-1]}, name!=""}})')
_AT_HOST = _renamed(f"({_NAMED} unless on (name) {_IS_SWITCH})", host="name", device="port")
_AT_SWITCH = _renamed(f"({_NAMED} and on (name) {_IS_SWITCH})", switch="name", switch_port="port")
_IS_UPLINK = f"on (peer) {_renamed(_IS_SWITCH, peer='name')}"


def _by_device(ports: str, labels: str) -> str:
    """Return the query for labels of the ports of hosts, by the name of the RDMA or the network device."""
    either = f'{ports} or label_replace({ports}, "device", "$1", "netdev", "(.+)")'
    return f"topk by (host, device) (1, max by (host, device, {labels}) ({either}))"


def hosts() -> str:
    """Return the query for the host of each row that has one, and its device if it is known."""
    behind = _renamed(f"({_AT_SWITCH} unless {_IS_UPLINK})", host="peer", device="peer_port")
    late = f"group by ({ROW}, host) ({_RANKS} * {HOST})"
    of_ranks = f"({_single(late)})"
    of_alerts = f"({_of_one('host')} and on ({ROW}) ({_ALERTS}))"
    of_ports = _ports_of_alerts("host, device")
    return f" or on ({ROW}) ".join([_AT_HOST, behind, of_ranks, of_ports, of_alerts])


def switches() -> str:
    """Return the query for the switch and its port of each row: that of the cause, or at the other end of its link."""
    ports = SWITCH_PORTS.replace("{}", ANY_TARGET)
    by_mac = (
        f"{_AT_HOST} * on (host, device) group_left (switch, switch_port) {_by_device(ports, 'switch, switch_port')}"
    )
    uplink = f'label_join({_AT_SWITCH} and {_IS_UPLINK}, "switch_port", " to ", "port", "peer")'
    peer = _renamed(_AT_HOST, switch="peer", switch_port="peer_port")
    of_alerts = f"({_of_one('switch')} and on ({ROW}) ({_ALERTS}))"
    of_ports = _ports_of_alerts("switch, switch_port", ', switch!=""')
    return f" or on ({ROW}) ".join([uplink, _AT_SWITCH, by_mac, peer, of_ports, of_alerts])


def rails() -> str:
    """Return the query for the rail of each row with one."""
    of_ports = _ports_of_alerts("rail", ', rail!=""')
    return f"{_rails_of_devices()} or on ({ROW}) {of_ports}"


def _rails_of_devices() -> str:
    ports = PORTS_OF_A_DAY.replace("{}", ANY_TARGET)
    return f"{_AT_HOST} * on (host, device) group_left (rail) {_by_device(ports, 'rail')}"


def since() -> str:
    """Return the query for when each cause began, in milliseconds, which every row has: not after the job's delay."""
    of_job = f"on (train_job) group_left () {SINCE}"
    found = _rows(f"(0 * max by (train_job, cause, name, port) ({_CONFIDENCE}) + {of_job})")
    alerts = f"min by ({ROW}, train_job, cause) ({_ALERTS})"
    of_rail = f'min by (host, rail) ({ACTIVE}{{layer=~"rdma|nic|pci", rail!=""}})'
    of_host = f"min by (train_job, host) ({OWN_ALERTS})"
    earlier = (
        f"min by ({ROW}, train_job, cause) (0 * ({_rails_of_devices()}) + on (host, rail) group_left () {of_rail}"
        f" or 0 * ({_AT_HOST} unless on ({ROW}) {_rails_of_devices()}) + on (train_job, host) group_left () {of_host})"
    )
    parts = [
        f"({earlier} < on ({ROW}, train_job, cause) {found})",
        found,
        f"(0 * {alerts} + {of_job} < {alerts})",
        alerts,
        _none(STEPS_NOT_NETWORK, f"and on (train_job) {STEPS_ALONE}"),
        _none("none found, see the alerts", f"and {_COLLECTORS}"),
        _none("unknown: no collector", f"unless {_COLLECTORS}"),
        _without_place(f"({JUDGED_SINCE} and on (train_job) {UNJUDGED})", "unknown: not enough data"),
    ]
    return f"1000 * ({f' or on ({ROW}) '.join(parts)})"


def places() -> str:
    """Return the query for the ranks of each row, for the names of its hosts if there are several, or another place."""
    return f"{_places()} and on ({ROW}) ({_ALERTS}) or {_places_of_ranks()}"


def first_causes() -> str:
    """Return the query for the first cause of each delayed job, in words.

    It is a likely one of a collector, else the first of the alerts, else a possible one of a collector. Critical alerts
    come before warnings, these before those that are pending, and then the oldest.
    """
    tiers = (*(_that_fire(f', severity{sign}"critical"') for sign in ("=", "!=")), _that_are_pending())
    first = " or on (train_job) ".join(
        f"bottomk by (train_job) (1, min by (train_job, {ROW}, cause) ({_of_concern(alerts)}))" for alerts in tiers
    )
    found = {"host": _of_one("host"), "switch": _of_one("switch"), "place": _places()}
    place = f" or on ({ROW}) ".join(
        f'label_replace({one}, "name", "$1", "{label}", "(.+)")' for label, one in found.items()
    )
    alerts = f"({first}) * on ({ROW}) group_left (name) max by ({ROW}, name) ({place})"
    first_found = first_cause(_KNOWN)
    return in_words(f"({first_found} >= {LIKELY} or on (train_job) {alerts} or on (train_job) {first_found})")
