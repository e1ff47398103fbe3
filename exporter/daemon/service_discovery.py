"""HTTP service discovery for Prometheus: the switches of the configuration, and their neighbours that are switches.

Targets that are not polled in the background have the label `__param_target`, so that Prometheus, with the exporter's
address set by relabelling, scrapes `/probe` for each.
"""

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from exporter.core.definition import SharedObjects
from exporter.sources.switch.options import Target
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.registry import KnownSwitch, SwitchRegistry
from exporter.sources.switch.source import DEFINITION
from exporter.sources.switch.targets import resolve_targets
from exporter.switch_api.neighbour import LldpNeighbour

PREFIX = "__meta_fabric_"

SWITCH_CAPABILITIES = frozenset(("bridge", "router"))
"""LLDP capabilities of which a switch has at least one."""


class TargetGroup(TypedDict):
    """One entry of the response: targets with the same labels."""

    targets: list[str]
    labels: dict[str, str]


def response(sections: Mapping[str, Any], shared: SharedObjects) -> bytes:
    """Return all known switches in the format of Prometheus's HTTP service discovery.

    Args:
        sections: Options of all sections of the configuration.
        shared: Has the switches of this process.
    """
    known = shared.get(SwitchRegistry).known
    found = configured(resolve_targets(sections[DEFINITION.name]), known)
    return json.dumps([*found, *discovered(known.values())]).encode()


def configured(targets: Iterable[tuple[Target, str]], known: Mapping[str, KnownSwitch]) -> list[TargetGroup]:
    """Return the switches of the configuration, including those of other shards.

    Args:
        targets: Each with the name of its group.
        known: The registered switches, by target name.
    """
    found: list[TargetGroup] = []
    for target, group in targets:
        registered = known.get(target.name)
        labels = {
            "name": target.name,
            "switch": registered.label if registered is not None else target.name,
            "address": target.address,
            "group": group,
            "role": (registered.role if registered is not None else "") or target.role or "",
            "protocols": ",".join(target.protocols()),
            "profile": target.profile or "",
            "polled": str(target.poll).lower(),
            "found_by": "configuration",
        }
        found.append(_target_group(target.name, labels, probed=not target.poll))
    return found


def discovered(known: Iterable[KnownSwitch]) -> list[TargetGroup]:
    """Return the switches that are LLDP neighbours of known switches, and not known themselves.

    A neighbour of several switches is listed once, with the first of them.
    """
    switches = list(known)
    names = {canonical(name) for one in switches for name in (one.target, one.label) if name}
    addresses = {address for one in switches for address in (one.address, *one.addresses) if address}
    chassis = {one.chassis for one in switches if one.chassis}
    found: dict[str, TargetGroup] = {}
    for one in switches:
        for neighbour in one.neighbours:
            address = _management_address(neighbour.addresses)
            if address is None or not neighbour.capabilities & SWITCH_CAPABILITIES:
                continue
            is_known = neighbour.chassis in chassis or bool(addresses & {*neighbour.addresses})
            if is_known or canonical(neighbour.name) in names:
                continue
            identity = neighbour.chassis or neighbour.name or address
            found.setdefault(identity, _target_group(address, _labels(one, neighbour, address), probed=True))
    return list(found.values())


def _labels(seen_by: KnownSwitch, neighbour: LldpNeighbour, address: str) -> dict[str, str]:
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


def _target_group(target: str, labels: Mapping[str, str], *, probed: bool) -> TargetGroup:
    meta = {f"{PREFIX}{name}": value for name, value in labels.items() if value}
    return {"targets": [target], "labels": meta | ({"__param_target": target} if probed else {})}


def _management_address(addresses: Sequence[str]) -> str | None:
    """Return the management address to poll: IPv4 before IPv6, without link-local, loopback and multicast ones."""
    usable = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_link_local or address.is_loopback or address.is_unspecified or address.is_multicast):
            usable.append(address)
    return str(min(usable, key=lambda one: (one.version, int(one)))) if usable else None
