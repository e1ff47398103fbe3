"""Empty cages of optical modules: some switches list them, with zero for each measurement.

A power of 0 dBm is a milliwatt of light, so that an empty cage would look like one that receives.
"""

from collections.abc import Iterable

_ZERO_DBM = 1e-3
_ZEROS = frozenset({0.0, _ZERO_DBM})
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


def is_measured(bias: float | None, *powers: float | None) -> bool:
    """Return whether the values of a lane of a module are measurements: no laser emits 0 dBm without a current.

    Some switches list four lanes for a module of one, with zeros in the others.

    Args:
        bias: Its bias current in amperes.
        powers: Its powers in watts.
    """
    known = [power for power in powers if power is not None]
    return bias != 0.0 or not known or any(power != _ZERO_DBM for power in known)
