"""Texts of ports, ranks and times in the evidence and reasons of causes."""

from collections.abc import Iterable

from exporter.meaning.ports.states import PortLocation


def location_text(port: PortLocation) -> str:
    """Return host or switch and port as text."""
    return f"{port.name} {port.port}".rstrip()


def ranks_text(names: Iterable[str]) -> str:
    """Name ranks; of many the first five."""
    ordered = sorted(names, key=lambda name: (len(name), name))
    first = ", ".join(ordered[:5])
    more = f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    return f"rank{'s' if len(ordered) > 1 else ''} {first}{more}"


def is_or_are(names: Iterable[str]) -> str:
    """Return the verb for a number of names."""
    return "is" if len(list(names)) == 1 else "are"


def span_text(seconds: float) -> str:
    """Return a time span as text."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
