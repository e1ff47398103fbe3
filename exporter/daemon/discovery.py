"""Service discovery: the switches of the configuration, and those that they see, as Prometheus's HTTP discovery has it.

Those that are not polled in the background have the parameter of a probe with them, so that Prometheus, once it is told
by relabelling where this exporter is, asks `/probe` for each.
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
"""What a neighbour can that is a switch."""


class TargetGroup(TypedDict):
    """One entry of the answer: targets that have the same labels."""

    targets: list[str]
    labels: dict[str, str]


def configured(targets: Iterable[tuple[Target, str]], known: Mapping[str, Known]) -> list[TargetGroup]:
    """List the switches of the configuration, those of other shards too.

    Args:
        targets: Each with the name of its group.
        known: What is known of each, by its name.
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
    """List the switches that those of the configuration see by LLDP, and that are not among them.

    One that several see stands once, with the first that sees it.
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
    given = {f"{PREFIX}{name}": value for name, value in labels.items() if value}
    return {"targets": [target], "labels": given | ({"__param_target": target} if probed else {})}


def _reachable(addresses: Sequence[str]) -> str | None:
    """Give the management address that is best asked: of IPv4 before IPv6, and none of the link alone."""
    usable = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_link_local or address.is_loopback or address.is_unspecified or address.is_multicast):
            usable.append(address)
    return str(min(usable, key=lambda one: (one.version, int(one)))) if usable else None
