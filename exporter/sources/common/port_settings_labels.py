"""Label values of the settings of a port; empty is not known.

They are the same for a NIC, its LLDP neighbour and a switch, so that both ends of a link can be compared.
"""

from collections.abc import Iterable, Sequence


def priorities_label(priorities: Sequence[int] | None) -> str:
    """Return the priorities as `3,4`, `none` where there is none, and "" where they are not known."""
    return "" if priorities is None else joined(priorities) or "none"


def on_off_label(state: bool | None) -> str:
    """Return `on`, `off`, or "" where the state is not known."""
    return "" if state is None else "on" if state else "off"


def joined(items: Iterable[int | str]) -> str:
    """Return the items with commas between them."""
    return ",".join(map(str, items))
