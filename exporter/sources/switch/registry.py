"""All switches of this process: who goes by which name, and what each knows of its neighbours.

Two switches of one system name would give one series two values, and what is at the other end of a link is told by
its label only if the other end is known here.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.sources.switch.merge import Neighbour


@dataclass(slots=True)
class Known:
    """What is known of one switch of the configuration.

    Attributes:
        target: Its name in the configuration.
        label: The label it goes by.
        address: Where it is asked.
        role: leaf, spine or core, by configuration or by its neighbours; empty while that is not known.
        name: Its system name.
        chassis: What identifies it in LLDP, where it tells.
        addresses: Its management addresses, where they are known.
        neighbours: By LLDP.
        ports: Labels of its ports by their canonical names; of two ports of one such name there is none.
    """

    target: str
    label: str
    address: str = ""
    role: str = ""
    name: str = ""
    chassis: str = ""
    addresses: tuple[str, ...] = ()
    neighbours: Sequence[Neighbour] = ()
    ports: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Roster:
    """The switches of the configuration last read.

    Attributes:
        known: By target.
        version: Rises whenever something of it changes.
        nudges: What to call with a port, or nothing, for a poll at once; of targets that are polled, by their name.
    """

    known: dict[str, Known] = field(default_factory=dict)
    version: int = 0
    nudges: dict[str, Callable[[str], None]] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    _reserved: frozenset[str] = frozenset()
    _indexed: int = -1
    _index: dict[tuple[str, str], Known | None] = field(default_factory=dict)

    def configure(self, addresses: Mapping[str, str]) -> None:
        """Take the targets of a new configuration, by name, with their addresses; those that are gone are forgotten."""
        self._reserved = frozenset(addresses)
        for target in self.known.keys() - addresses.keys():
            del self.known[target]
        self._owners = {name: owner for name, owner in self._owners.items() if owner in addresses}
        for target, address in addresses.items():
            self.known.setdefault(target, Known(target, target)).address = address
        self.version += 1

    def claim(self, target: str, system_name: str) -> str:
        """Give the label of a switch: its system name, unless another target goes by it or it has none."""
        if self._owners.get(system_name) != target:
            self.release(target)
        label = target
        free = system_name and system_name not in self._reserved - {target}
        if free and self._owners.setdefault(system_name, target) == target:
            label = system_name
        self.note(target, label=label, name=system_name)
        return label

    def release(self, target: str) -> None:
        """Let another target go by the name that this one had."""
        for name in [name for name, owner in self._owners.items() if owner == target]:
            del self._owners[name]

    def forget(self, target: str) -> None:
        """Forget a switch that was probed, unless it is one of the configuration."""
        if target not in self._reserved and self.known.pop(target, None) is not None:
            self.release(target)
            self.version += 1

    def note(self, target: str, **facts: object) -> Known:
        """Take note of what a switch told; `facts` are attributes of Known."""
        known = self.known.setdefault(target, Known(target, target))
        for name, fact in facts.items():
            if getattr(known, name) != fact:
                setattr(known, name, fact)
                self.version += 1
        return known

    def all(self) -> Iterable[Known]:
        """Give all that is known."""
        return self.known.values()

    def find(self, neighbour: Neighbour) -> Known | None:
        """Find which of the switches a neighbour is: by its chassis, its name, its address, its name without domain.

        A trait that two switches share, such as the name that all have from the factory, tells nothing. Nor does one
        name the switch whose chassis is known to be another.
        """
        if self._indexed != self.version:
            self._index, self._indexed = _index(self.known.values()), self.version
        wanted = [
            ("chassis", neighbour.chassis.lower()),
            ("name", neighbour.name.lower()),
            *(("address", address) for address in neighbour.addresses),
            ("short", _short(neighbour.name)),
        ]
        for trait in wanted:
            found = self._index.get(trait)
            if found is not None and not _contradicts(found.chassis, neighbour.chassis):
                return found
        return None


def _index(switches: Iterable[Known]) -> dict[tuple[str, str], Known | None]:
    """Give each switch by each of its traits; None where two have it."""
    index: dict[tuple[str, str], Known | None] = {}
    for known in switches:
        for trait in set(_traits(known)):
            index[trait] = None if trait in index else known
    return index


def _traits(known: Known) -> Iterator[tuple[str, str]]:
    host = _host(known.address)
    names = {known.name, known.label, known.target}
    if not _is_address(host):
        names.add(host)
    yield from (("address", address) for address in (host, *known.addresses) if address)
    yield from (("name", name.lower()) for name in names if name)
    yield from (("short", short) for name in names if (short := _short(name)))
    if known.chassis:
        yield ("chassis", known.chassis.lower())


def _short(name: str) -> str:
    """Give a host name without its domain."""
    return name.lower() if _is_address(name) else name.lower().partition(".")[0]


def _host(address: str) -> str:
    """Give the host of an address: `host`, `host:port` or `[v6]:port`."""
    found = re.fullmatch(r"\[(.*)\](:\d+)?|([^:]*)(:\d+)?", address)
    return address if found is None else found[1] or found[3] or ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def is_mac(text: str) -> bool:
    """Tell a MAC address in its usual form."""
    return _MAC.fullmatch(text) is not None


def _contradicts(one: str, other: str) -> bool:
    """Tell whether two identities of chassis are of different switches."""
    return is_mac(one) and is_mac(other) and one != other
