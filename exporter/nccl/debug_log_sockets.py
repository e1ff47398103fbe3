"""Rules for lines of NCCL's log about TCP connections that failed: of bootstrap, NET/Socket and out-of-band traffic.

The wording, and whether the peer is named, differ by release: "Connect to PEER failed" up to
2.26 and "connect to PEER failed" since, "Call to connect returned ERROR, retrying" up to 2.23, "connect returned
ERROR" in 2.24 to 2.26, "connect to PEER returned ERROR" since 2.27.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import Fact
from exporter.nccl.log_rule import log_rule, optional_number
from exporter.nccl.system_errors import number_of_text

_PEER = r"([\w.:%\-]{1,255})<\d{0,5}>"


def _failure(operation: str, peer: str, error: str, *, number: int | None = None, retried: bool = False) -> Fact:
    text = error.strip().removesuffix(".")[:120]
    return facts.SocketFailure(operation, peer, text, number_of_text(text) if number is None else number, retried)


def _connect_to(found: re.Match[str]) -> Fact:
    peer, failed, number, returned, retried = found.groups()
    return _failure("connect", peer, failed or returned, number=optional_number(number), retried=bool(retried))


def _connect(found: re.Match[str]) -> Fact:
    return _failure("connect", "", found[1], retried=bool(found[2]))


_EXCEEDED: Mapping[str, str] = MappingProxyType({"retries": "Connection refused", "timeouts": "Connection timed out"})
"""Limits of NCCL 2.16 to 2.23, and the error of which each counts the repetitions."""

_OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "recv": "receive",
        "recv from": "receive",
        "read": "receive",
        "send": "send",
        "send to": "send",
        "write": "send",
        "connect": "connect",
        "accept": "accept",
        "poll": "poll",
        "getsockopt": "poll",
        "socket": "create",
        "bind": "listen",
        "listen": "listen",
    }
)
"""Calls that a line names, and the operation that each is part of."""


def _call(found: re.Match[str]) -> Fact:
    call, peer, failed, returned = found.groups()
    return _failure(_OPERATIONS[call], peer or "", failed or returned, retried=failed is None)


def _accept(found: re.Match[str]) -> Fact:
    return _failure("accept", "", found[1])


SOCKET_RULES = (
    log_rule(
        "onnect to ",
        rf"onnect to {_PEER} (?:failed(?: with error| ?:) ?(.{{1,120}})"
        r"|returned (?:(\d{1,5})\()?([^,()]{1,120})\)?(, retrying)?)",
        _connect_to,
    ),
    log_rule("onnect returned ", r"onnect returned ([^,]{1,120}), (?:(retrying)|exceeded)", _connect),
    log_rule(
        "onnect: exceeded ",
        r"onnect: exceeded (retries|timeouts) \(",
        lambda found: _failure("connect", "", _EXCEEDED[found[1]]),
    ),
    log_rule(
        "PollConnect poll() ",
        r"PollConnect poll\(\) (?:failed with error|returned) (.{1,120})",
        lambda found: _failure("poll", "", found[1]),
    ),
    log_rule(
        "Call to ",
        r"Call to (recv from|send to|recv|send|read|write|connect|accept|poll|getsockopt|socket|bind|listen)"
        rf"(?: {_PEER})? (?:failed ?: (.{{1,120}})|returned ([^,]{{1,120}}), retrying)",
        _call,
    ),
    log_rule("Accept failed", r"Accept failed:? (.{1,120})", _accept),
    log_rule("TryAccept: ", r"TryAccept: exceeded error retry count[^,]{1,40}, (.{1,120})", _accept),
    log_rule(
        "TryAccept: ",
        r"TryAccept: get errno (\d{1,5}) that",
        lambda found: _failure("accept", "", "", number=int(found[1])),
    ),
    log_rule(
        "Socket creation failed",
        r"Socket creation failed : (.{1,120})",
        lambda found: _failure("create", "", found[1]),
    ),
    log_rule(
        "getting address info",
        r"error encountered when getting address info : (.{1,120})",
        lambda found: _failure("resolve", "", found[1]),
    ),
    log_rule(
        "No interface found in the same subnet",
        rf"No interface found in the same subnet as remote address {_PEER}",
        lambda found: _failure("interface", found[1], ""),
    ),
    log_rule(
        "interface found",
        r"(?:no socket interface|no interface|No usable listening interface|No IP interface) found",
        lambda _: _failure("interface", "", ""),
    ),
    log_rule(
        "no device found ",
        r"no device found (?:matching|after excluding) .{1,200}(?:verify NCCL_OOB_NET_IFNAME|, ignoring)",
        lambda _: _failure("interface", "", ""),
    ),
    log_rule(
        "closed by remote peer",
        r"closed by remote peer(?: ([\w.:%\-]{1,255})<|\s*$)",  # without the address up to 2.9
        lambda found: facts.PeerClosed(found[1] or ""),
    ),
)
"""Failures of TCP."""
