"""The configuration of a port that is the same for all APIs: MTU, speed, FEC, priority flow control, ECN thresholds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.switch_api.text_values import json_counter

MAX_MTU = 65_534
"""Bytes of the highest MTU of an Ethernet port; 65535 and more are those of virtual interfaces, or no limit."""


@dataclass(frozen=True, slots=True)
class EcnThresholds:
    """The depths of a queue at which packets are marked; what the switch does not report is None.

    Attributes:
        minimum: Bytes above which the first packets are marked.
        maximum: Bytes above which all are.
        probability: Share of the packets that is marked just below the maximum, from 0 to 1.
    """

    minimum: int | None = None
    maximum: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class PortSettings:
    """The settings of one port; what the switch does not report is None or empty.

    Attributes:
        mtu: Bytes, as the switch counts them.
        speed: The configured speed in bits per second.
        autoneg: Whether autonegotiation is configured.
        fec: The configured FEC: `none`, `rs`, `baser` or `auto`, else the switch's own word.
        pfc: The priorities with priority flow control.
        trust: Which field sets the priority of a packet: `dscp`, `pcp`, `both` or `none`.
        pfc_watchdog: What the PFC watchdog does with a queue that is paused for too long: `drop`, `forward` or `alert`;
            `off` where there is none.
        ecn: By queue; only those that mark.
    """

    mtu: int | None = None
    speed: int | None = None
    autoneg: bool | None = None
    fec: str = ""
    pfc: tuple[int, ...] | None = None
    trust: str = ""
    pfc_watchdog: str = ""
    ecn: Mapping[str, EcnThresholds] = field(default_factory=dict)


def parse_mtu(value: object) -> int | None:
    """Return an MTU that JSON has as a number or as decimal text; None for anything else, and where it is no limit."""
    mtu = json_counter(value)
    return mtu if mtu is not None and 0 < mtu <= MAX_MTU else None
