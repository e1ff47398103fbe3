"""Ethernet switches, each polled by what it speaks: SNMP or Onyx's JSON API.

One source a switch: a switch that does not answer costs its own time alone. What is common to all of them is here:
the metrics, the configuration and the names; how a switch is asked is in the reader of its protocol.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from exporter import vocabulary
from exporter.secret import check_one
from exporter.source import Definition, Host, Reading, Selection, Source
from exporter.units import Duration
from exporter.vocabulary import gauge, info

LABELS = ("switch", "port")

SCHEMA = vocabulary.schema(
    "fabric_switch_",
    LABELS,
    [
        *(
            f"{way}_{what}_total"
            for what in (
                "bytes",
                "packets",
                "unicast_packets",
                "multicast_packets",
                "broadcast_packets",
                "errors",
                "discards",
                "pause_frames",
            )
            for way in ("receive", "transmit")
        ),
        "fcs_errors_total",
        "symbol_errors_total",
        "ecn_marked_packets_total",
        "link_up",
        "link_speed_bytes_per_second",
        "resets_total",
    ],
    {
        "info": info(
            "What the port is; target is the switch's name in the configuration.",
            "target",
            "ifindex",
            "alias",
            "if_type",
        ),
        "admin_up": gauge("Whether the port is switched on by configuration (1) or not (0)."),
    },
    note="On the wire.",
    origins={
        "receive_bytes_total": ["IF-MIB ifHCInOctets", "Onyx: Rx bytes"],
        "transmit_bytes_total": ["IF-MIB ifHCOutOctets", "Onyx: Tx bytes"],
        "receive_packets_total": [
            "IF-MIB ifHCInUcastPkts + ifHCInMulticastPkts + ifHCInBroadcastPkts",
            "Onyx: Rx packets",
        ],
        "transmit_packets_total": [
            "IF-MIB ifHCOutUcastPkts + ifHCOutMulticastPkts + ifHCOutBroadcastPkts",
            "Onyx: Tx packets",
        ],
        "receive_unicast_packets_total": ["IF-MIB ifHCInUcastPkts"],
        "transmit_unicast_packets_total": ["IF-MIB ifHCOutUcastPkts"],
        "receive_multicast_packets_total": ["IF-MIB ifHCInMulticastPkts"],
        "transmit_multicast_packets_total": ["IF-MIB ifHCOutMulticastPkts"],
        "receive_broadcast_packets_total": ["IF-MIB ifHCInBroadcastPkts"],
        "transmit_broadcast_packets_total": ["IF-MIB ifHCOutBroadcastPkts"],
        "receive_errors_total": ["IF-MIB ifInErrors", "Onyx: Rx error packets"],
        "transmit_errors_total": ["IF-MIB ifOutErrors", "Onyx: Tx error packets"],
        "receive_discards_total": ["IF-MIB ifInDiscards", "Onyx: Rx discard packets"],
        "transmit_discards_total": ["IF-MIB ifOutDiscards", "Onyx: Tx discard packets"],
        "receive_pause_frames_total": ["Onyx: Rx pause packets"],
        "transmit_pause_frames_total": ["Onyx: Tx pause packets"],
        "fcs_errors_total": ["Onyx: Rx FCS errors"],
        "symbol_errors_total": ["Onyx: Rx symbol errors"],
        "ecn_marked_packets_total": ["Onyx congestion-control: ECN marked packets"],
        "link_up": ["IF-MIB ifOperStatus", "Onyx: Operational state"],
        "link_speed_bytes_per_second": ["IF-MIB ifHighSpeed", "Onyx: Speed"],
        "admin_up": ["IF-MIB ifAdminStatus"],
        "info": ["IF-MIB ifName, ifAlias, ifType", "Onyx: Description"],
    },
)

PRIORITY = vocabulary.schema(
    "fabric_switch_",
    (*LABELS, "priority"),
    ["receive_pfc_frames_total", "transmit_pfc_frames_total"],
    origins={
        "receive_pfc_frames_total": ["CISCO-PFC-EXT-MIB cpfcIfPriorityIndications"],
        "transmit_pfc_frames_total": ["CISCO-PFC-EXT-MIB cpfcIfPriorityRequests"],
    },
)

DEVICE = vocabulary.schema(
    "fabric_switch_",
    ("switch",),
    own={
        "device_info": info(
            "The switch; target is its name in the configuration.", "target", "description", "object_id"
        ),
        "uptime_seconds": gauge("Time since the switch's management started."),
    },
    origins={
        "device_info": ["SNMPv2-MIB sysDescr, sysObjectID"],
        "uptime_seconds": ["SNMPv2-MIB sysUpTime"],
    },
)


class Snmp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a switch is asked by SNMP; the community is given in one of three ways.

    Attributes:
        version: Version of the protocol.
        timeout: Time to wait for the first try of a question.
        retries: Tries after the first.
    """

    version: Literal["2c"] = "2c"
    community: str | None = None
    community_file: str | None = None
    community_env: str | None = None
    timeout: Duration = Duration(1.0)
    retries: int = 2

    def __post_init__(self) -> None:
        """See that there is one community."""
        check_one("community", self.community, self.community_file, self.community_env)


class Onyx(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a switch is asked by Onyx's JSON API; the password is given in one of three ways.

    Attributes:
        username: User with the right to `show`.
        ca_file: PEM file of the CAs to trust in place of the system's.
        sha256: Fingerprint of the switch's own certificate, which then is all that is trusted.
        insecure: Whether to trust whoever answers.
    """

    username: str
    password: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca_file: str | None = None
    sha256: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        """See that there is one password, and one way to trust."""
        check_one("password", self.password, self.password_file, self.password_env)
        if (self.ca_file is not None) + (self.sha256 is not None) + self.insecure > 1:
            raise ValueError("ca_file, sha256 and insecure exclude each other; give one of them")
        if self.sha256 is not None and not re.fullmatch("[0-9A-Fa-f]{64}", self.sha256.replace(":", "").strip()):
            raise ValueError("sha256 is no fingerprint: it has 64 hexadecimal digits, with or without colons")


class Target(Selection, frozen=True, kw_only=True):
    """One switch; include and exclude are names of its ports.

    Attributes:
        name: Its name in the exporter; also its label where it does not tell its own.
        address: Host, or host and port.
        interval: Time between polls; that of the defaults where not given.
    """

    name: str
    address: str
    interval: Duration | None = None
    snmp: Snmp | None = None
    onyx: Onyx | None = None

    def __post_init__(self) -> None:
        """See that there is a name, one protocol and an address fit for it."""
        if not self.name:
            raise ValueError("the name is empty; give one, it becomes a label")
        if (self.snmp is None) == (self.onyx is None):
            raise ValueError("give exactly one of snmp and onyx")
        if self.snmp is not None:
            from exporter.snmp.client import parse_address  # noqa: PLC0415  # only where there are switches

            parse_address(self.address)


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for every switch that does not say otherwise."""

    interval: Duration = Duration(15.0)


class SwitchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `switches`.

    Attributes:
        defaults: What holds for all targets.
        targets: The switches.
        drop: Metric names, as shell patterns, that are not exported.
        keep: Names of details, as shell patterns, that are exported too.
    """

    defaults: Defaults = Defaults()
    targets: tuple[Target, ...] = ()
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """See that no name stands twice."""
        names = [target.name for target in self.targets]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"two targets are named {twice!r}; names tell them apart")


class Reader(Protocol):
    """Asks one switch in its own protocol."""

    async def read(self) -> Reading:
        """Poll once; raises SourceError when the switch gives nothing."""

    async def close(self) -> None:
        """Let go of the connection."""


class SwitchSource:
    """One switch."""

    name = "switch"
    changed: asyncio.Event | None = None

    def __init__(self, target: Target, interval: float, reader: Reader) -> None:
        """Take what to poll, how often in seconds, and by what."""
        self.target = target.name
        self.interval = interval
        self.settings = (target, interval)
        self._reader = reader

    async def applies(self) -> bool:
        """Tell that a switch that was configured is there to be read, whether it answers or not."""
        return True

    async def read(self) -> Reading:
        """Poll the switch once."""
        return await self._reader.read()

    async def close(self) -> None:
        """Close the connection."""
        await self._reader.close()


_named: dict[str, str] = {}
"""System name to the target that goes by it: two switches of one name would give one series two values."""

_targets: set[str] = set()
"""Names in the configuration last read, by which a switch goes that has no system name of its own."""


def claim_name(target: str, system_name: str) -> str:
    """Give the label of a switch: its system name, unless another target goes by it or it has none."""
    if _named.get(system_name) != target:
        release_name(target)
    if system_name and system_name not in _targets - {target} and _named.setdefault(system_name, target) == target:
        return system_name
    return target


def release_name(target: str) -> None:
    """Let another target go by the name that this one had."""
    for name in [name for name, owner in _named.items() if owner == target]:
        del _named[name]


def _build(options: SwitchOptions, host: Host) -> Sequence[Source]:  # noqa: ARG001  # a switch is not on this host
    sources = []
    _targets.clear()
    _targets.update(target.name for target in options.targets)
    for target in options.targets:
        interval = float(target.interval if target.interval is not None else options.defaults.interval)
        sources.append(SwitchSource(target, interval, _reader(target, interval)))
    return sources


def _reader(target: Target, interval: float) -> Reader:
    """Make the reader; its module is loaded only where a switch needs it."""
    if target.snmp is not None:
        from exporter.sources.switch_snmp import SnmpReader  # noqa: PLC0415

        return SnmpReader(target, target.snmp, interval)
    from exporter.sources.switch_onyx import OnyxReader  # noqa: PLC0415

    assert target.onyx is not None  # noqa: S101  # Target has exactly one of the two
    return OnyxReader(target, target.onyx)


DEFINITION = Definition("switch", SwitchOptions, (SCHEMA, PRIORITY, DEVICE), _build, section="switches")
