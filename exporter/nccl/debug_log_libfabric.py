"""Rules for warnings of aws-ofi-nccl (NET/OFI) about requests and calls of libfabric that failed.

Errors of requests are of the peer or of the network. Their wording differs by release of the plugin: "Request PTR
completed with error. RC: CODE. Error: TEXT. Completed length" from 1.3 on, "Error: CODE (TEXT)" from 1.10 on, "seq N"
in some from 1.17 on, "Flags" from 1.19 on, and "Request PTR (KIND) completed with error: err: CODE, …" from 1.21 on.
libfabric's own lines repeat these, and are not read.
"""

import re

from exporter.nccl import log_facts as facts
from exporter.nccl.log_facts import Fact
from exporter.nccl.log_rule import log_rule

_CODE = re.compile(r"(?:RC|err): (-?\d{1,7})", re.ASCII)
_TEXT = re.compile(r"Error: (?:\d{1,7} \()?(.{0,400}?)\)?\. Completed length|strerror: (.{0,400}?), len:", re.ASCII)
_KIND = re.compile(r"(?:direction|type): (\w{1,24})|\((\w{1,24})\) completed", re.ASCII)
_EFA_PEER = re.compile(r"Peer EFA addr: fi_addr_efa://\[([0-9A-Fa-f:.]{2,45})\]", re.ASCII)

KINDS = (
    ("SEND", "send"),
    ("RECV", "receive"),
    ("BOUNCE", "receive"),
    ("RX_BUFF", "receive"),
    ("WRITE", "write"),
    ("READ", "read"),
    ("EAGER_COPY", "read"),
    ("FLUSH", "flush"),
    ("cm", "connect"),
)
"""Part of the word that the plugin prints for the kind of a request, and the operation that it is."""


def _request(found: re.Match[str]) -> Fact | None:
    line = found.string[found.start() : found.start() + 2000]
    code = _CODE.search(line, found.end() - found.start())
    if code is None:
        return None  # "Request completed with error" alone follows the line with the code
    text, kind, peer = _TEXT.search(line), _KIND.search(line), _EFA_PEER.search(line)
    name = "WRITE" if found[1] == "Remote write" else (kind[1] or kind[2]) if kind else ""
    return facts.LibfabricFailure(
        next((operation for part, operation in KINDS if part in name), "request"),
        abs(int(code[1])),
        ((text[1] or text[2] or "") if text else "").strip()[:200],
        peer[1] if peer else "",
    )


CALLS = (
    ("connect", "connect"),
    ("completion queue", "completion_queue"),
    ("fi_cq_readerr", "completion_queue"),
    ("egister", "memory"),
    ("mr_bind", "memory"),
    ("mr_enable", "memory"),
    (" MR ", "memory"),
    ("post", "post"),
    ("fi_write", "post"),
    ("fi_send", "post"),
    ("fi_tsend", "post"),
    ("fi_read", "post"),
    ("read operation", "post"),
    ("not send request", "post"),
    ("Couldn't", "setup"),
    ("fi_getname", "setup"),
    ("address vector", "setup"),
    ("OFI call failed", "setup"),
)
"""Part of a warning about a call that failed, and the operation. Warnings with none of them are about files or the
topology, not about the network."""


def _call(found: re.Match[str]) -> Fact | None:
    operation = next((operation for part, operation in CALLS if part in found[1]), None)
    if operation is None:
        return None
    return facts.LibfabricFailure(operation, abs(int(found[2])), (found[3] or "").strip()[:200], "")


_KEYWORD = "WARN NET/OFI "

LIBFABRIC_RULES = (
    log_rule(_KEYWORD, r"NET/OFI (Request|Remote write)\b.{0,300}? ?completed with error", _request),
    log_rule(
        _KEYWORD,
        r"NET/OFI (?:Operation with NULL context completed with|Unknown remote write) error",
        lambda _: facts.LibfabricFailure("request", None, "", ""),
    ),
    log_rule(
        _KEYWORD,
        r"NET/OFI (.{1,200}?)[.;:]?(?: with)? (?:RC|rc)[:=]? ?(-?\d{1,7})"
        r"(?:[.,] ?(?:(?:ERROR|Error|error)[:=] ?)?(.{1,200}))?",
        _call,
    ),
)
"""Failures of libfabric."""
