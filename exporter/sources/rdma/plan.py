"""Which of the ways to read each counter of a port is taken, and where its value then stands: pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.sources.rdma.files import (
    HW_COUNTERS,
    Cell,
    Choice,
    Choices,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How the counters of one port are read.

    Attributes:
        layout: What is known of each value, in their order; behind them stand what only sums and `raw` need.
        places: By file, where its value stands.
        sums: Places of what is added up, and the places of what that is made of.
        raw: Names of the counters that are read under the driver's own names, with their places.
        size: How many values there are in all.
    """

    layout: tuple[Cell, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    sums: tuple[tuple[int, tuple[int, ...]], ...] = ()
    raw: tuple[tuple[str, int], ...] = ()
    size: int = 0

    def with_raw(self, names: Sequence[str]) -> "Plan":
        """Add counters of `hw_counters/` under the driver's own names."""
        raw = tuple((name, self.size + place) for place, name in enumerate(names))
        places = {**self.places, **{f"{HW_COUNTERS}/{name}": place for name, place in raw}}
        return replace(self, places=places, raw=raw, size=self.size + len(raw))


def plan(ways: Choices, has: Callable[[str], bool]) -> Plan:
    """Take for each counter the first way all of whose files a port has.

    A counter that a port cannot tell keeps its place, so that the ports of a driver share a table.
    """
    chosen = [_chosen(choices, has) for choices in ways]
    layout = tuple(choices[0].cell if one is None else one.cell for choices, one in zip(ways, chosen, strict=True))
    places: dict[str, int] = {}
    for place, one in enumerate(chosen):
        if one is not None and len(one.files) == 1:
            places.setdefault(one.files[0], place)
    sums = []
    size = len(layout)
    for place, one in enumerate(chosen):
        if one is None or places.get(one.files[0]) == place:
            continue
        for path in one.files:
            if path not in places:
                places[path], size = size, size + 1
        sums.append((place, tuple(places[path] for path in one.files)))
    return Plan(layout, places, tuple(sums), size=size)


def has_other(ways: Choices, path: str, has: Callable[[str], bool]) -> bool:
    """Tell whether a counter that a file tells can be read in another way too."""
    return any(
        path not in choice.files and all(map(has, choice.files))
        for choices in ways
        if any(path in choice.files for choice in choices)
        for choice in choices
    )


def _chosen(choices: Sequence[Choice], has: Callable[[str], bool]) -> Choice | None:
    return next((choice for choice in choices if all(map(has, choice.files))), None)
