"""Rules for lines of NCCL's log about failures of RDMA: events of NICs, completions, libibverbs, failover."""

import re

from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import Fact
from exporter.nccl.log_rule import log_rule, optional_number

_DEVICE_PORT = re.compile(r"NET/[A-Za-z/]{2,16} ?: ?([A-Za-z][\w.\-]{0,63}):(\d{1,3}) ", re.ASCII)


def _port_of(line: str) -> tuple[str, int | None]:
    """Return the device and port that a line names; ("", None) where it names none."""
    found = _DEVICE_PORT.search(line)
    return (found[1], int(found[2])) if found else ("", None)


def _async_event(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[2].strip()[:120], None if found[1] is None else False)


def _fatal_event(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[1].strip()[:120], fatal=True)


_GID_TABLE = "GID table changed"
_GID_CHANGE = "18"
"""IBV_EVENT_GID_CHANGE of libibverbs, which releases before 2.28 do not name."""


def _unnamed_event(found: re.Match[str]) -> Fact:
    event = _GID_TABLE if found[1] == _GID_CHANGE else found[0]
    return facts.AsyncEvent(*_port_of(found.string), event, fatal=False)


def _gid_table(found: re.Match[str]) -> Fact:
    return facts.AsyncEvent(*_port_of(found.string), found[0], fatal=False)


def _speed_change(found: re.Match[str]) -> Fact:
    return facts.SpeedChange(*_port_of(found.string))


_VENDOR = re.compile(r"vendor[ _]err(?:=| )(\d{1,10})", re.ASCII)
_HCA = re.compile(r" hca (\w[\w.\-]{0,63})", re.ASCII)
_PEER = re.compile(r"from peer ([\w.:%\-]{1,255})<\d{0,5}>", re.ASCII)
_DIRECTION = re.compile(r"\((Send|Recv)\)|req_type=(Send|Recv)", re.ASCII)


def _completion(found: re.Match[str]) -> Fact | None:
    status = int(found[1] or found[2] or found[3])
    if not status:
        return None  # success, which a build with traces prints
    rest = found.string[found.start() :]
    peer, vendor, hca, direction = (one.search(rest) for one in (_PEER, _VENDOR, _HCA, _DIRECTION))
    return facts.Completion(
        status,
        int(vendor[1]) if vendor else None,
        peer[1] if peer else "",
        hca[1] if hca else "",
        (direction[1] or direction[2]) if direction else "",
    )


_ERROR_NUMBER = re.compile(r" errno \d{1,5}\Z", re.ASCII)


def _verbs(found: re.Match[str]) -> Fact:
    call, error, device, port, before, after = found.groups()
    states = (before, after) if before and after else ()
    text = _ERROR_NUMBER.sub("", (error or "").strip().removesuffix("."))
    return facts.VerbsFailure(call, text[:120], device or "", optional_number(port), states)


def _other_call(found: re.Match[str]) -> Fact:
    call, error = found.groups()
    return facts.VerbsFailure(call, (error or "").strip()[:120], "", None, ())


RDMA_RULES = (
    log_rule("Got ", r"Got (?:(non-fatal) )?async (?:error )?event ?: ?(.{1,160})", _async_event),
    # Fatal events have no "Got" (2.23.4 and later); 2.30.7 has attributes of the queue before the colon.
    log_rule(
        "async fatal event",
        r"async fatal event(?: on (?:QP|CQ|SRQ)(?:, unused for now)? \([^)]{1,40}\)[^:]{0,250})? ?: ?(.{1,160})",
        _fatal_event,
    ),
    log_rule("unknown event type", r"unknown event type \((\d{1,4})\)", _unnamed_event),
    log_rule(_GID_TABLE, _GID_TABLE, _gid_table),
    log_rule("speed change detected", r"speed change detected: \d{1,9} -> (?:\w{1,16}|N/A) Mbps", _speed_change),
    log_rule(
        "Got ",
        # With failover (2.29.7 and later) there is neither peer nor device.
        r"Got completion (?:from peer.{0,300}? )?with "
        r"(?:error (\d{1,3})|status=(?:IBV_\w{1,40}\()?(\d{1,3})|error \(.{1,20}, wc->status=\(\w{1,40}\)(\d{1,3}))",
        _completion,
    ),
    log_rule(
        "Call to ibv_",
        r"Call to (ibv_\w{1,60}) failed(?: with (?:error )?(?:\d{1,5} )?([^,]{1,120}))?"
        r"(?:, on dev (\w[\w.\-]{0,63}):(\d{1,3}))?(?:, curr state (\w{1,16}), next state (\w{1,16}))?",
        _verbs,
    ),
    log_rule(
        "Call to ibv_",
        r"Call to (ibv_poll_cq)\(\) returned -?\d{1,10}()",
        _other_call,
    ),
    log_rule("ibv_post_", r"(ibv_post_(?:send|recv))\(\) failed with error ([^,]{1,120})", _other_call),
    log_rule("mlx5dv_", r"(mlx5dv_create_qp) failed to create QP: (.{1,120})", _other_call),
    log_rule("ibv_reg_mr", r"(ibv_reg_mr\w{0,32}) .{0,120}?failed()", _other_call),
    log_rule("marked as failed", r"Device (\d{1,4}) marked as failed", lambda found: facts.Failover(int(found[1]))),
    log_rule(
        "as permanently failed",
        r"Marking device (\d{1,4}) as permanently failed",
        lambda found: facts.RecoveryFailure(int(found[1])),
    ),
    log_rule(
        "has been recovered",
        r"Device (\d{1,4}) has been recovered",
        lambda found: facts.Recovered(int(found[1])),
    ),
    log_rule(
        "encountered a fatal error",
        r"communicator encountered a fatal error \(detected in (\w{1,64})\)",
        lambda found: facts.FatalError(found[1]),
    ),
    log_rule("The error is fatal", r"The error is fatal \((.{1,120}?)\)", lambda found: facts.FatalError(found[1])),
    *(
        log_rule(word, word + r"[^.(]{0,120}", lambda found: facts.FatalError(found[0].strip()))
        for word in (
            # With each a failover fails and the communicator ends, without another line (2.29.7 and later).
            "more than a single failed device",
            "Maximum number of probing attempts",
            "Could not find a functional device",
            "Could not find a replacement QP",
        )
    ),
)
"""Failures of RDMA."""
