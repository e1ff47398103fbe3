"""Empty cages of optical modules: some switches list them, with zero for each measurement.

A power of 0 dBm is a milliwatt of light, so that an empty cage would look like one that receives.
"""

from collections.abc import Iterable

_ZEROS = frozenset({0.0, 1e-3})
"""Zero in the units of a switch: 0 dBm is 1 mW."""


def has_module(voltage: float | None, measurements: Iterable[float | None]) -> bool:
    """Return whether a cage has a module: one with a supply voltage; where that is unknown, with a measurement.

    A single zero is a measurement: it may be 0 dBm.

    Args:
        voltage: Its supply voltage in volts; None where the switch does not report it.
        measurements: All others in base units: temperature, powers, bias currents.
    """
    if voltage is not None:
        return voltage != 0.0
    known = [one for one in measurements if one is not None]
    return len(known) <= 1 or any(one not in _ZEROS for one in known)
