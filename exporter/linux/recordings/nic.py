"""Recordings of what network devices answer: one file per device, `<device>.json`, made by a program or by hand.

    {
      "link": {"ifindex": 2, "admin_up": true, "carrier": true, "mtu": 9000, "stats": {"rx_bytes": 1}},
      "driver": {"name": "mlx5_core", "firmware": "28.39.1002", "bus": "0000:17:00.0"},
      "statistics": {"rx_bytes_phy": 18446744073709551615, "rx_prio3_pause": 7},
      "settings": {"speed_bits_per_second": 400000000000, "duplex": "full"},
      "link_modes": {"speed_bits_per_second": 400000000000, "lanes": 4, "max_speed_bits_per_second": 400000000000},
      "link_state": {"up": false, "reason": "no_cable", "down_count": 3},
      "pause": {"autoneg": false, "receive": true, "transmit": true, "receive_frames": 7},
      "fec": {"active": "rs", "corrected_blocks": 12, "uncorrectable_blocks": 0},
      "standard_statistics": {"FramesReceivedOK": 12, "FrameCheckSequenceErrors": 0},
      "dcb": {"pfc": [3], "dscp_rules": true},
      "queueing": {"kind": "tbf", "drops": 17, "rate_bytes_per_second": 12500000},
      "module": {"lower": "18 40 .. …", "page_00h": "…"}
    }

The keys of each answer are the fields of `Link` (less its name, which is the file's), `Driver`, `LinkSettings`,
`LinkModes`, `LinkState`, `Pause`, `Fec`, `Dcb` and `Queueing`. Statistics are an object in the driver's order or,
where a driver repeats names, a list of [name, value]. The memory of the module in the port is in `module_memory`'s
form. In the place of an answer, {"errno": "EINVAL"} has the request fail so; an answer left out fails with EOPNOTSUPP.
"""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from exporter.linux.ethtool import Driver, LinkSettings, Statistics
from exporter.linux.netlink.dcb import Dcb
from exporter.linux.netlink.ethtool import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.qdisc import Queueing
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.recordings.folder import (
    SUFFIX,
    Failed,
    build,
    check_values,
    error_number,
    read_part,
    statistics,
)
from exporter.linux.recordings.module_memory import ModuleMemory, parse_memory

Pairs: TypeAlias = list[tuple[str, int]]

_Answer = TypeVar("_Answer")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a recording, each still to be read, so that a broken one costs no other."""

    link: msgspec.Raw = msgspec.Raw()
    driver: msgspec.Raw = msgspec.Raw()
    statistics: msgspec.Raw = msgspec.Raw()
    settings: msgspec.Raw = msgspec.Raw()
    link_modes: msgspec.Raw = msgspec.Raw()
    link_state: msgspec.Raw = msgspec.Raw()
    pause: msgspec.Raw = msgspec.Raw()
    fec: msgspec.Raw = msgspec.Raw()
    standard_statistics: msgspec.Raw = msgspec.Raw()
    dcb: msgspec.Raw = msgspec.Raw()
    queueing: msgspec.Raw = msgspec.Raw()
    module: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class NicRecording:
    """What a file says."""

    link: Link | Failed
    driver: Driver | Failed
    statistics: Statistics | Failed
    settings: LinkSettings | Failed
    link_modes: LinkModes | Failed
    link_state: LinkState | Failed
    pause: Pause | Failed
    fec: Fec | Failed
    standard_statistics: dict[str, int] | Failed
    dcb: Dcb | Failed
    queueing: Queueing | Failed
    module: ModuleMemory | Failed


def parse(data: bytes, path: Path, before: NicRecording | None) -> NicRecording:
    """Read the parts of a recording; see Recordings."""
    file = msgspec.json.decode(data, type=_File)

    def fields(part: str, kind: type[_Answer], **known: str) -> _Answer | Failed:
        return read_part(getattr(file, part), lambda raw: build(kind, raw, **known), part, path)

    counted = None if before is None else before.statistics
    return NicRecording(
        fields("link", Link, name=path.name.removesuffix(SUFFIX)),
        fields("driver", Driver),
        read_part(file.statistics, lambda raw: statistics(raw, counted), "statistics", path),
        fields("settings", LinkSettings),
        fields("link_modes", LinkModes),
        fields("link_state", LinkState),
        fields("pause", Pause),
        fields("fec", Fec),
        read_part(file.standard_statistics, _standard_statistics, "standard_statistics", path),
        fields("dcb", Dcb),
        fields("queueing", Queueing),
        read_part(file.module, _module, "module", path),
    )


def failure_name(error: OSError) -> dict[str, str] | None:
    """Give an error as a recording has it; None for what is left out of one."""
    number = error.errno or errno.EIO
    return None if number == errno.EOPNOTSUPP else {"errno": errno.errorcode.get(number, "EIO")}


def pairs(statistics: Statistics) -> dict[str, int] | Pairs:
    """Give statistics as a recording has them."""
    found = list(zip(statistics.names, statistics.values, strict=True))
    unique = dict(found)
    return unique if len(unique) == len(found) else found


def _standard_statistics(raw: msgspec.Raw) -> dict[str, int]:
    found = msgspec.json.decode(raw, type=dict[str, int])
    check_values(found.items())
    return found


class _Error(msgspec.Struct, forbid_unknown_fields=True):
    """An error in the place of a half of a module's memory."""

    errno: str


def _module(raw: msgspec.Raw) -> ModuleMemory:
    halves = msgspec.json.decode(raw, type=dict[str, str | _Error])
    return parse_memory(
        {key: error_number(half.errno) if isinstance(half, _Error) else half for key, half in halves.items()}
    )
