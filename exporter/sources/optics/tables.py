"""Tables of optical modules: identity and state, lanes, thresholds."""

from collections.abc import Mapping

from exporter.core.table import (
    RowKeeper,
    Schema,
    Table,
    TableBuilder,
)
from exporter.linux.optics.module import (
    LANE_QUANTITIES,
    OpticalModule,
    ThresholdLevels,
)
from exporter.sources.optics.metrics import LANE, MODULE, THRESHOLD


class OpticsTables:
    """Makes the tables, and reuses the text of their rows from poll to poll."""

    def __init__(self) -> None:
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (MODULE, LANE, THRESHOLD)}

    def make(self, modules: Mapping[str, OpticalModule], time: float) -> list[Table]:
        """Make the tables of modules by device; `time` is the start of the read."""
        builders = {schema: TableBuilder(schema) for schema in self._keepers}
        for device, module in modules.items():
            _add_rows(device, module, builders)
        return [builder.table(self._keepers[schema], time) for schema, builder in builders.items() if builder.keys]


def _add_rows(device: str, module: OpticalModule, builders: dict[Schema, TableBuilder]) -> None:
    builders[MODULE].row(
        (device,),
        {
            "module_info": (module.kind, module.vendor, module.part, module.serial, module.revision),
            "module_state_info": None if module.state is None else (module.state,),
            "module_fault": None if module.state is None else int(module.state == "fault"),
            "module_temperature_celsius": module.temperature_celsius,
            "module_voltage_volts": module.voltage_volts,
        },
    )
    for lane in module.lanes:
        builders[LANE].row(
            (device, str(lane.number)),
            {f"module_lane_{quantity.name}": getattr(lane, quantity.name) for quantity in LANE_QUANTITIES},
        )
    for level in ThresholdLevels._fields:
        row = {f"module_threshold_{name}": getattr(levels, level) for name, levels in module.thresholds.items()}
        if row:
            builders[THRESHOLD].row((device, level), row)
