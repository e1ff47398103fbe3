"""What is counted in NCCL's logs: names for the texts of libibverbs and libfabric, and the counters of each fact.

Logs are untrusted, so label values come from the tables below; text that is in none of them is `other`.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from exporter.core.collectives import OTHER, known_kind
from exporter.core.table import LabelValues
from exporter.nccl import log_facts as facts
from exporter.nccl.system_errors import name_of

PORT_EVENTS = (
    ("port error", "port_error"),
    ("port active", "port_active"),
    ("GID table change", "gid_change"),
    ("work queue catastrophic", "queue_pair_fatal"),
    ("SRQ catastrophic", "queue_pair_fatal"),
    ("local catastrophic", "device_fatal"),
    ("access violation", "queue_pair_access"),
    ("invalid request", "queue_pair_request"),
    ("path migra", "path_migration"),
    ("LID change", "lid_change"),
    ("P_Key change", "pkey_change"),
    ("SM change", "subnet_manager_change"),
    ("client reregist", "reregistration"),
    ("CQ error", "completion_queue_error"),
)
"""Part of libibverbs' text of an asynchronous event, and the label value."""

STATUSES = MappingProxyType(
    {
        1: "local_length",
        2: "local_queue_pair",
        4: "local_protection",
        6: "memory_window",
        7: "bad_response",
        8: "local_access",
        9: "remote_invalid_request",
        10: "remote_access",
        11: "remote_operation",
        12: "retries_exceeded",
        13: "receiver_not_ready",
        16: "remote_abort",
        19: "fatal",
        20: "response_timeout",
        21: "general",
    }
)
"""Values of ibv_wc_status, and the label value. 5 (flushed) is counted separately: it follows from another error."""

RETRIES_EXCEEDED = 12

CALLS = frozenset(
    {
        "ibv_modify_qp",
        "ibv_create_qp",
        "ibv_create_cq",
        "ibv_create_srq",
        "ibv_alloc_pd",
        "ibv_reg_mr",
        "ibv_reg_mr_iova2",
        "ibv_reg_dmabuf_mr",
        "ibv_open_device",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_query_gid",
        "ibv_post_send",
        "ibv_post_recv",
        "ibv_poll_cq",
        "mlx5dv_create_qp",
    }
)
"""Functions of libibverbs and libmlx5 that are label values."""

PROVIDER_ERRORS = (
    ("unresponsive", "unresponsive"),
    ("unreachable remote", "unreachable"),
    ("reset by remote peer", "reset"),
    ("resource not ready", "receiver_not_ready"),
    ("flushed", "flushed"),
    ("registration is invalid", "access"),
    ("invalid address", "bad_address"),
    ("bad queue pair", "bad_queue_pair"),
    ("peer closed", "aborted"),
)
"""Part of the EFA provider's text of an error (efa_errno.h of libfabric), in lower case, and the label value."""

NO_ANSWER = frozenset({"unresponsive", "unreachable", "no_route"})
"""Errors of libfabric that mean that the peer did not answer."""

CountedRows = Iterable[tuple[str, LabelValues]]
"""Counters that a fact increments: kind of counter, and label values after the job."""


def label_value(text: str, names: Iterable[tuple[str, str]]) -> str:
    """Return the label value of the first entry that `text` contains; `other` if there is none."""
    return next((name for part, name in names if part in text), OTHER)


def _completion(host: str, fact: facts.Completion) -> CountedRows:
    if fact.consequence:
        yield "flushed_completions", (host,)
        return
    yield "completion_errors", (host, fact.device, STATUSES.get(fact.status, OTHER))
    if fact.status == RETRIES_EXCEEDED and fact.peer:
        yield "unreachable_peers", (fact.peer,)


def _port_event(host: str, fact: facts.AsyncEvent) -> CountedRows:
    yield "port_events", (host, fact.device, _port(fact.port), label_value(fact.event, PORT_EVENTS))


def _speed_change(host: str, fact: facts.SpeedChange) -> CountedRows:
    yield "port_events", (host, fact.device, _port(fact.port), "speed_change")


def _verbs_failure(host: str, fact: facts.VerbsFailure) -> CountedRows:
    call = fact.call if fact.call in CALLS else OTHER
    yield "verbs_failures", (host, fact.device, call, _error(fact.error, None))


def _socket_failure(host: str, fact: facts.SocketFailure) -> CountedRows:
    error = _error(fact.error, fact.number)
    yield "socket_failures", (host, fact.operation, error, "retried" if fact.retried else "failed")
    if fact.operation == "connect" and fact.peer and not fact.retried:
        yield "connect_failures", (fact.peer, error)


def _libfabric_failure(host: str, fact: facts.LibfabricFailure) -> CountedRows:
    error = label_value(fact.error.lower(), PROVIDER_ERRORS)
    if error == OTHER:
        error = _error(fact.error, fact.code)
    yield "libfabric_failures", (host, fact.operation, error)
    if error in NO_ANSWER and fact.peer:
        yield "unreachable_peers", (fact.peer,)


def _error(text: str, number: int | None) -> str:
    """Return the label value of an error of the system; empty where a line has none."""
    return (name_of(text, number) or OTHER) if text or number is not None else ""


def _by_host(kind: str) -> Callable[[str, Any], CountedRows]:
    """Return a function that counts facts by host."""
    return lambda host, _fact: ((kind, (host,)),)


def _port(port: int | None) -> str:
    return "" if port is None else str(port)


COUNTED: Mapping[type, Callable[[str, Any], CountedRows]] = MappingProxyType(
    {
        facts.AsyncEvent: _port_event,
        facts.SpeedChange: _speed_change,
        facts.Completion: _completion,
        facts.VerbsFailure: _verbs_failure,
        facts.WatchdogTimeout: lambda _host, fact: (("watchdog_timeouts", (known_kind(fact.operation),)),),
        facts.WatchdogStall: lambda _host, _fact: (("watchdog_stalls", ()),),
        facts.SocketFailure: _socket_failure,
        facts.LibfabricFailure: _libfabric_failure,
        facts.Failover: _by_host("failovers"),
        facts.RecoveryFailure: _by_host("recovery_failures"),
        facts.Recovered: _by_host("recoveries"),
        facts.FatalError: _by_host("fatal_errors"),
        facts.PeerClosed: _by_host("peers_closed"),
    }
)
"""The counters that each type of fact increments; called with the host and the fact."""
