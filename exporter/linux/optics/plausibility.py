"""Plausibility of what a module measured: values that are impossible, or not measured, are dropped.

Some drivers return bytes of another address. An impossible temperature or voltage is the sign of it: then all measured
values are dropped. A threshold is checked on its own, as vendors set many of them carelessly.
"""

from dataclasses import replace
from types import MappingProxyType

from exporter.linux.optics.module import (
    LANE_QUANTITIES,
    QUANTITIES,
    TEMPERATURE,
    VOLTAGE,
    OpticalLane,
    OpticalModule,
)

_MAXIMUM = MappingProxyType({quantity.name: quantity.maximum for quantity in QUANTITIES})

MAX_THRESHOLD_FACTOR = 10
"""Multiple of the highest measurable value that a threshold may have: vendors disable alarms by unreachable ones."""

NO_LIGHT_WATTS = 1e-7
"""Power that still counts as no light: the smallest step, which many modules report with the laser off."""


def drop_implausible(module: OpticalModule) -> OpticalModule:
    """Return the module without values that are not measured or implausible, and with the latter described."""
    module = _drop_unmeasured(module)
    implausible = [
        f"{quantity.name}, {value:g}, is not within {quantity.minimum:g} to {quantity.maximum:g}"
        for quantity in (TEMPERATURE, VOLTAGE)
        if (value := getattr(module, quantity.name)) is not None and not quantity.is_plausible(value)
    ]
    if implausible:
        identity = OpticalModule(module.kind, module.vendor, module.part, module.serial, module.revision)
        return replace(identity, implausible=tuple(implausible))
    lanes = tuple(_drop_implausible_lane_values(lane, implausible) for lane in module.lanes)
    thresholds = dict(module.thresholds)
    for name, levels in module.thresholds.items():
        if levels.low_alarm >= levels.high_alarm:
            implausible.append(
                f"the low alarm of {name}, {levels.low_alarm:g}, is not below its high alarm, {levels.high_alarm:g}"
            )
            del thresholds[name]
        elif max(map(abs, levels)) > MAX_THRESHOLD_FACTOR * _MAXIMUM[name]:
            implausible.append(f"a threshold of {name}, {max(levels, key=abs):g}, is beyond what a module can measure")
            del thresholds[name]
    return replace(module, lanes=lanes_in_use(lanes), thresholds=thresholds, implausible=tuple(implausible))


def lanes_in_use(lanes: tuple[OpticalLane, ...]) -> tuple[OpticalLane, ...]:
    """Return the lanes without unused ones: those without bias and light where others have some.

    Modules with four lanes in a cage for eight have unused lanes. A lane with bias but no light is in use and faulty.
    If no lane has any, all are returned: the lasers are off.
    """
    lit = tuple(lane for lane in lanes if not _is_dark(lane))
    return lit or lanes


def _is_dark(lane: OpticalLane) -> bool:
    """Return whether a lane has no bias and no light; False if its bias is not monitored."""
    light = max(lane.receive_power_watts or 0.0, lane.transmit_power_watts or 0.0)
    return lane.bias_amperes == 0 and light <= NO_LIGHT_WATTS


def _drop_unmeasured(module: OpticalModule) -> OpticalModule:
    """Treat 0 V as not measured, as the module is powered; with 0 degrees and dark lanes, nothing is measured.

    The same for a module that monitors its temperature and not its voltage: zeros alone are no measurements.
    """
    if module.voltage_volts or (module.voltage_volts is None and module.temperature_celsius is None):
        return module
    is_lit = any(getattr(lane, quantity.name) for lane in module.lanes for quantity in LANE_QUANTITIES)
    if module.temperature_celsius or is_lit:
        return replace(module, voltage_volts=None)
    return replace(module, temperature_celsius=None, voltage_volts=None, lanes=())


def _drop_implausible_lane_values(lane: OpticalLane, implausible: list[str]) -> OpticalLane:
    values: list[float | None] = []
    for quantity in LANE_QUANTITIES:
        value = getattr(lane, quantity.name)
        if value is not None and not quantity.is_plausible(value):
            implausible.append(
                f"{quantity.name} of lane {lane.number}, {value:g}, is not within 0 to {quantity.maximum:g}"
            )
            value = None
        values.append(value)
    return OpticalLane(lane.number, *values)
