"""All switches of this process: who goes by which name, and what each knows of its neighbours.

Two switches of one system name would give one series two values, and what is at the other end of a link is told by
its label only if the other end is known here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.sources.switches.parts import Neighbour


@dataclass(slots=True)
class Known:
    """What is known of one switch of the configuration.

    Attributes:
        target: Its name in the configuration.
        label: The label it goes by.
        address: Where it is asked.
        role: leaf, spine or core, by configuration or by its neighbours; empty while that is not known.
        chassis: What identifies it in LLDP, where it tells.
        addresses: Its management addresses, where they are known.
        neighbours: By LLDP.
    """

    target: str
    label: str
    address: str = ""
    role: str = ""
    chassis: str = ""
    addresses: tuple[str, ...] = ()
    neighbours: Sequence[Neighbour] = ()


@dataclass(slots=True)
class Roster:
    """The switches of the configuration last read.

    Attributes:
        known: What is known of each, by target.
        nudges: What to call with a port, or nothing, for a poll at once; of targets that are polled, by their name.
    """

    known: dict[str, Known] = field(default_factory=dict)
    nudges: dict[str, Callable[[str], None]] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)
    _reserved: frozenset[str] = frozenset()

    def configure(self, addresses: Mapping[str, str]) -> None:
        """Take the targets of a new configuration, by name, with their addresses; those that are gone are forgotten."""
        self._reserved = frozenset(addresses)
        for target in self.known.keys() - addresses.keys():
            del self.known[target]
        self._owners = {name: owner for name, owner in self._owners.items() if owner in addresses}
        for target, address in addresses.items():
            self.known.setdefault(target, Known(target, target)).address = address

    def claim(self, target: str, system_name: str) -> str:
        """Give the label of a switch: its system name, unless another target goes by it or it has none."""
        if self._owners.get(system_name) != target:
            self.release(target)
        label = target
        free = system_name and system_name not in self._reserved - {target}
        if free and self._owners.setdefault(system_name, target) == target:
            label = system_name
        self.known.setdefault(target, Known(target, label)).label = label
        return label

    def release(self, target: str) -> None:
        """Let another target go by the name that this one had."""
        for name in [name for name, owner in self._owners.items() if owner == target]:
            del self._owners[name]

    def all(self) -> Iterable[Known]:
        """Give all that is known."""
        return self.known.values()
