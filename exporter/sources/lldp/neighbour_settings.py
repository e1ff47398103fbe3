"""Cells of the settings that a neighbour announces; label values have the form of those of a NIC's own settings."""

from collections.abc import Sequence

from exporter.core.table import Value
from exporter.linux.lldp.peer_settings import Ets, PeerSettings
from exporter.sources.common.port_settings_labels import joined, priorities_label


def settings_cells(settings: PeerSettings) -> dict[str, Value]:
    """Return the cells by ending; none for what the neighbour does not announce."""
    labels = (
        priorities_label(settings.pfc),
        _yes_no(settings.pfc_willing),
        *_ets_labels(settings.ets),
        _yes_no(settings.ets_willing),
        *_ets_labels(settings.recommended_ets),
        _entries_label(None if settings.dscps is None else [f"{dscp}:{priority}" for dscp, priority in settings.dscps]),
        _entries_label(None if settings.applications is None else [*map(_application, settings.applications)]),
    )
    cells: dict[str, Value] = {"peer_settings_info": labels} if any(labels) else {}
    if settings.max_frame is not None:
        cells["peer_max_frame_bytes"] = settings.max_frame
    return cells


def _ets_labels(ets: Ets | None) -> tuple[str, str]:
    return ("", "") if ets is None else (joined(ets.classes), joined(ets.priority_classes))


def _yes_no(state: bool | None) -> str:
    return "" if state is None else "yes" if state else "no"


def _entries_label(entries: Sequence[str] | None) -> str:
    return "" if entries is None else joined(entries) or "none"


def _application(entry: tuple[str, int, int]) -> str:
    selector, protocol, priority = entry
    return f"{selector}:{protocol:#06x}:{priority}" if selector == "ethertype" else f"{selector}:{protocol}:{priority}"
