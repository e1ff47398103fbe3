"""Prometheus HTTP service discovery: configured switches, and their LLDP neighbours that are not configured.

Switches that are not polled in the background have the label `__param_target`, so that Prometheus can request `/probe`
for each; relabelling has to set the address to that of the exporter.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from exporter.sources.switch.merge import Neighbour
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import Known

PREFIX = "__meta_fabric_"

SWITCHING = frozenset(("bridge", "router"))
"""LLDP system capabilities of a switch."""


class TargetGroup(TypedDict):
    """One entry of the response: targets that share labels."""

    targets: list[str]
    labels: dict[str, str]


def configured(targets: Iterable[tuple[Target, str]], known: Mapping[str, Known]) -> list[TargetGroup]:
    """Return the configured switches, including those of other shards.

    Args:
        targets: Switches, each with the name of its group.
        known: State of the switches that were read, by their names.
    """
    found: list[TargetGroup] = []
    for target, group in targets:
        seen = known.get(target.name)
        labels = {
            "name": target.name,
            "switch": seen.label if seen is not None else target.name,
            "address": target.address,
            "group": group,
            "role": (seen.role if seen is not None else "") or target.role or "",
            "ways": ",".join(target.ways()),
            "profile": target.profile or "",
            "polled": str(target.poll).lower(),
            "found_by": "configuration",
        }
        found.append(_entry(target.name, labels, probed=not target.poll))
    return found


def discovered(known: Iterable[Known]) -> list[TargetGroup]:
    """Return the switches that configured ones see by LLDP and that are not configured.

    A switch that is seen by several is returned once, with the first that sees it.
    """
    switches = list(known)
    names = {canonical(name) for one in switches for name in (one.target, one.label) if name}
    addresses = {address for one in switches for address in (one.address, *one.addresses) if address}
    chassis = {one.chassis for one in switches if one.chassis}
    found: dict[str, TargetGroup] = {}
    for one in switches:
        for neighbour in one.neighbours:
            address = _reachable(neighbour.addresses)
            if address is None or not neighbour.capabilities & SWITCHING:
                continue
            is_known = neighbour.chassis in chassis or bool(addresses & {*neighbour.addresses})
            if is_known or canonical(neighbour.name) in names:
                continue
            identity = neighbour.chassis or neighbour.name or address
            found.setdefault(identity, _entry(address, _labels(one, neighbour, address), probed=True))
    return list(found.values())


def _labels(seen_by: Known, neighbour: Neighbour, address: str) -> dict[str, str]:
    return {
        "name": neighbour.name,
        "switch": neighbour.name,
        "address": address,
        "chassis": neighbour.chassis,
        "description": neighbour.description,
        "polled": "false",
        "found_by": "lldp",
        "seen_by": seen_by.label,
        "seen_by_port": neighbour.port,
    }


def _entry(target: str, labels: Mapping[str, str], *, probed: bool) -> TargetGroup:
    meta = {f"{PREFIX}{name}": value for name, value in labels.items() if value}
    return {"targets": [target], "labels": meta | ({"__param_target": target} if probed else {})}


def _reachable(addresses: Sequence[str]) -> str | None:
    """Return the preferred management address: IPv4 before IPv6, and no link-local one."""
    usable = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_link_local or address.is_loopback or address.is_unspecified or address.is_multicast):
            usable.append(address)
    return str(min(usable, key=lambda one: (one.version, int(one)))) if usable else None
