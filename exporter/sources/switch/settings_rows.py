"""Rows of the configuration of one switch, the same for all APIs."""

from collections.abc import Mapping

from exporter.core.table import LabelValues, Value
from exporter.sources.common.port_settings_labels import on_off_label, priorities_label
from exporter.sources.switch.merge import PartialTable, PartialTableBuilder
from exporter.sources.switch.settings_metrics import BUFFER_POOLS, QUEUE_SETTINGS, SETTINGS
from exporter.switch_api.port_settings import PortSettings

ASPECT = "settings"
"""Distinguishes these tables from those of the counters of the same ports and queues."""


class SettingsRows:
    """Builds the tables of the configuration."""

    def __init__(self) -> None:
        self._builders = {schema: PartialTableBuilder(schema, ASPECT) for schema in (SETTINGS, QUEUE_SETTINGS)}
        self._pools = PartialTableBuilder(BUFFER_POOLS, ASPECT)

    def parts(
        self, time: float, ports: Mapping[str, PortSettings], pools: Mapping[str, int] | None = None
    ) -> list[PartialTable]:
        """Return the tables that have rows.

        Args:
            time: Monotonic seconds at which the configuration was read.
            ports: Settings by port.
            pools: Bytes by buffer pool.
        """
        for name, settings in ports.items():
            cells = settings_cells(settings)
            if cells:
                self._builders[SETTINGS].row((name,), cells)
            for queue, thresholds in sorted(settings.ecn.items(), key=_by_number):
                self._builders[QUEUE_SETTINGS].row(
                    (name, queue),
                    {
                        "queue_ecn_min_threshold_bytes": thresholds.minimum,
                        "queue_ecn_max_threshold_bytes": thresholds.maximum,
                        "queue_ecn_max_probability_ratio": thresholds.probability,
                    },
                )
        for pool, size in (pools or {}).items():
            self._pools.row((pool,), {"buffer_pool_bytes": size})
        built = [builder.part(time) for builder in (*self._builders.values(), self._pools)]
        return [part for part in built if part.columns]


def settings_cells(settings: PortSettings) -> dict[str, Value]:
    """Return the cells of a port by ending; none for what is not known."""
    labels: LabelValues = (
        on_off_label(settings.autoneg),
        settings.fec,
        priorities_label(settings.pfc),
        settings.trust,
        settings.pfc_watchdog,
    )
    cells: dict[str, Value] = {"settings_info": labels} if any(labels) else {}
    if settings.mtu is not None:
        cells["mtu_bytes"] = settings.mtu
    if settings.speed is not None:
        cells["configured_speed_bytes_per_second"] = settings.speed / 8
    return cells


def _by_number(item: tuple[str, object]) -> int:
    return int(item[0])
