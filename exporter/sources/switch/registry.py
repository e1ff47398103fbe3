"""The registry of all switches of this process: their labels, and what identifies them as LLDP neighbours of others.

Labels must be unique: two switches with the same system name would have the same series. The other end of a link has
the label of its switch only if that switch is in the registry.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.config.addresses import is_ip_address
from exporter.sources.switch.shared import SharedBySwitches
from exporter.switch_api.neighbour import LldpNeighbour


@dataclass(slots=True)
class KnownSwitch:
    """One switch of the configuration, or one that is probed.

    Attributes:
        target: Its name in the configuration.
        label: Value of the label `switch` of its series.
        address: Address that is polled.
        role: leaf, spine or core, by configuration or by its neighbours; empty while it is not known.
        name: System name.
        chassis: LLDP chassis ID, where it is known.
        addresses: Management addresses, where they are known.
        neighbours: LLDP neighbours.
        ports: Labels of its ports by their canonical names; without names that two ports share.
    """

    target: str
    label: str
    address: str = ""
    role: str = ""
    name: str = ""
    chassis: str = ""
    addresses: tuple[str, ...] = ()
    neighbours: Sequence[LldpNeighbour] = ()
    ports: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SwitchRegistry:
    """The switches of the current configuration.

    Attributes:
        shared: What their polls share.
        known: By target.
        version: Incremented whenever something changes.
        poll_callbacks: By target that is polled: polls it at once; the argument is a port, or empty for the switch.
    """

    shared: SharedBySwitches = field(default_factory=SharedBySwitches)
    known: dict[str, KnownSwitch] = field(default_factory=dict)
    version: int = 0
    poll_callbacks: dict[str, Callable[[str], None]] = field(default_factory=dict)
    _label_owners: dict[str, str] = field(default_factory=dict)
    _reserved: frozenset[str] = frozenset()
    _indexed_version: int = -1
    _index: dict[tuple[str, str], KnownSwitch | None] = field(default_factory=dict)

    def configure(self, addresses: Mapping[str, str]) -> None:
        """Set the targets of a new configuration, by name, with their addresses; other targets are removed."""
        self._reserved = frozenset(addresses)
        for target in self.known.keys() - addresses.keys():
            del self.known[target]
        self._label_owners = {name: owner for name, owner in self._label_owners.items() if owner in addresses}
        for target, address in addresses.items():
            self.known.setdefault(target, KnownSwitch(target, target)).address = address
        self.version += 1

    def claim_label(self, target: str, system_name: str) -> str:
        """Return the label of a switch: its system name, or its target name if that is empty or used by another."""
        if self._label_owners.get(system_name) != target:
            self.release_label(target)
        label = target
        free = system_name and system_name not in self._reserved - {target}
        if free and self._label_owners.setdefault(system_name, target) == target:
            label = system_name
        self.update(target, label=label, name=system_name)
        return label

    def forget(self, target: str) -> None:
        """Drop what a switch has reported, its label included: it is not polled any more, or at another address."""
        self.release_label(target)
        known = self.known.get(target)
        if known is not None:
            self.known[target] = KnownSwitch(target, target, known.address)
            self.version += 1

    def release_label(self, target: str) -> None:
        """Make the label of a target available to others."""
        for name in [name for name, owner in self._label_owners.items() if owner == target]:
            del self._label_owners[name]

    def remove(self, target: str) -> None:
        """Remove a switch that was probed, unless it is in the configuration."""
        if target not in self._reserved and self.known.pop(target, None) is not None:
            self.release_label(target)
            self.version += 1

    def update(self, target: str, **facts: object) -> KnownSwitch:
        """Update a switch; `facts` are attributes of KnownSwitch."""
        known = self.known.setdefault(target, KnownSwitch(target, target))
        for name, fact in facts.items():
            if getattr(known, name) != fact:
                setattr(known, name, fact)
                self.version += 1
        return known

    def find(self, neighbour: LldpNeighbour) -> KnownSwitch | None:
        """Find the switch that a neighbour is: by chassis ID, name, address, or name without domain, in this order.

        An identifier that two switches share, such as a factory name, matches neither. None of them matches a switch
        that is known to have another chassis ID.
        """
        if self._indexed_version != self.version:
            self._index, self._indexed_version = _index(self.known.values()), self.version
        identifiers = [
            ("chassis", neighbour.chassis.lower()),
            ("name", neighbour.name.lower()),
            *(("address", address) for address in neighbour.addresses),
            ("short", _short_name(neighbour.name)),
        ]
        for identifier in identifiers:
            found = self._index.get(identifier)
            if found is not None and not _differ(found.chassis, neighbour.chassis):
                return found
        return None


def _index(switches: Iterable[KnownSwitch]) -> dict[tuple[str, str], KnownSwitch | None]:
    """Index switches by their identifiers; None for an identifier that two share."""
    index: dict[tuple[str, str], KnownSwitch | None] = {}
    for known in switches:
        for identifier in set(_identifiers(known)):
            index[identifier] = None if identifier in index else known
    return index


def _identifiers(known: KnownSwitch) -> Iterator[tuple[str, str]]:
    host = _host(known.address)
    names = {known.name, known.label, known.target}
    if not is_ip_address(host):
        names.add(host)
    yield from (("address", address) for address in (host, *known.addresses) if address)
    yield from (("name", name.lower()) for name in names if name)
    yield from (("short", short) for name in names if (short := _short_name(name)))
    if known.chassis:
        yield ("chassis", known.chassis.lower())


def _short_name(name: str) -> str:
    """Return a host name without its domain."""
    return name.lower() if is_ip_address(name) else name.lower().partition(".")[0]


def _host(address: str) -> str:
    """Return the host of an address: `host`, `host:port` or `[v6]:port`."""
    found = re.fullmatch(r"\[(.*)\](:\d+)?|([^:]*)(:\d+)?", address)
    return address if found is None else found[1] or found[3] or ""


_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def is_mac(text: str) -> bool:
    """Return whether a text is a MAC address as `aa:bb:cc:dd:ee:ff`."""
    return _MAC.fullmatch(text) is not None


def _differ(one: str, other: str) -> bool:
    """Return whether two chassis IDs are MAC addresses and differ."""
    return is_mac(one) and is_mac(other) and one != other
