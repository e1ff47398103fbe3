"""Failures of a sweep: nodes and ports that did not respond."""

from exporter.core.source import Failure
from exporter.sources.ibfabric.model import LinkEnd, format_guid
from exporter.sources.ibfabric.sweep import M_KEY_DROP_LEVEL, SweepResult

MAX_FAILURES = 200
"""Failures that are reported singly for one sweep; the others are reported as one with their number."""


def sweep_failures(result: SweepResult) -> list[Failure]:
    """List the failures of nodes, of ports of other nodes, and of unknown peers."""
    fabric = result.fabric
    found = [
        Failure(format_guid(guid), problem.value, f"{fabric.nodes[guid].name}: subnet management: {problem.value}")
        for guid, problem in sorted(result.node_problems.items())
        if guid in fabric.nodes
    ]
    found += [
        Failure(format_guid(end.guid), problem.value, f"{_port_name(result, end)}: counters: {problem.value}")
        for end, problem in sorted(result.problems.items())
        if end.guid not in result.node_problems
    ]
    level = max((port.m_key_protect for node in fabric.nodes.values() for port in node.ports.values()), default=0)
    hint = (
        f"; the fabric is protected by an M_Key (level {level}): the node may have another key"
        if level >= M_KEY_DROP_LEVEL
        else ""
    )
    text = f"the link is up, its peer does not respond{hint}"
    found += [
        Failure(format_guid(end.guid), "peer_unresponsive", f"{_port_name(result, end)}: {text}")
        for end in sorted(fabric.unanswered)
    ]
    if len(found) > MAX_FAILURES:
        rest = Failure("", "more", f"{len(found) - MAX_FAILURES} more ports and nodes do not respond")
        found = [*found[:MAX_FAILURES], rest]
    return found


def _port_name(result: SweepResult, end: LinkEnd) -> str:
    node = result.fabric.nodes.get(end.guid)
    return f"{format_guid(end.guid) if node is None else node.name}, port {end.port}"
