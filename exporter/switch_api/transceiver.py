"""Measurements of the optical module in a port (digital optical monitoring)."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Transceiver:
    """Degrees Celsius, volts, and by lane power in dBm and laser bias current in amperes; lanes are "1", "2", …."""

    temperature: float | None = None
    voltage: float | None = None
    receive_power: Mapping[str, float] = field(default_factory=dict)
    transmit_power: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)
