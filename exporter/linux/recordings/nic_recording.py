"""Recordings of network devices: one file per device, `<device>.json`, written by `record` or by hand.

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

The keys of each answer are the fields of `NetworkLink` (without the name, which is the file's), `DriverInfo`,
`LinkSettings`, `LinkModes`, `LinkState`, `Pause`, `Fec`, `Dcb` and `QueueingDiscipline`. Statistics are an object in
the driver's order or, where a driver repeats names, a list of [name, value]. The module's memory has the form that
`module_memory` describes. An answer may be an error, {"errno": "EINVAL"}; an absent answer fails with EOPNOTSUPP.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from exporter.linux.ethtool_ioctl import DriverInfo, LinkSettings, Statistics
from exporter.linux.netlink.data_center_bridging import Dcb
from exporter.linux.netlink.ethtool_netlink import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.recordings.module_memory import ModuleMemory, parse_memory
from exporter.linux.recordings.recording_folder import (
    SUFFIX,
    RecordedError,
    check_u64_values,
    convert_object,
    parse_errno,
    parse_part,
    parse_statistics,
)

_Answer = TypeVar("_Answer")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The answers of a recording, each parsed on its own, so that a malformed one affects no other."""

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
    """The answers of one file."""

    link: NetworkLink | RecordedError
    driver: DriverInfo | RecordedError
    statistics: Statistics | RecordedError
    settings: LinkSettings | RecordedError
    link_modes: LinkModes | RecordedError
    link_state: LinkState | RecordedError
    pause: Pause | RecordedError
    fec: Fec | RecordedError
    standard_statistics: dict[str, int] | RecordedError
    dcb: Dcb | RecordedError
    queueing: QueueingDiscipline | RecordedError
    module: ModuleMemory | RecordedError


def parse_nic_recording(data: bytes, path: Path, before: NicRecording | None) -> NicRecording:
    """Parse a recording; see Recordings."""
    file = msgspec.json.decode(data, type=_File)

    def parse_object(part: str, kind: type[_Answer], **known: str) -> _Answer | RecordedError:
        return parse_part(getattr(file, part), lambda raw: convert_object(kind, raw, **known), part, path)

    previous = None if before is None else before.statistics
    return NicRecording(
        parse_object("link", NetworkLink, name=path.name.removesuffix(SUFFIX)),
        parse_object("driver", DriverInfo),
        parse_part(file.statistics, lambda raw: parse_statistics(raw, previous), "statistics", path),
        parse_object("settings", LinkSettings),
        parse_object("link_modes", LinkModes),
        parse_object("link_state", LinkState),
        parse_object("pause", Pause),
        parse_object("fec", Fec),
        parse_part(file.standard_statistics, _parse_standard_statistics, "standard_statistics", path),
        parse_object("dcb", Dcb),
        parse_object("queueing", QueueingDiscipline),
        parse_part(file.module, _parse_module, "module", path),
    )


def _parse_standard_statistics(raw: msgspec.Raw) -> dict[str, int]:
    found = msgspec.json.decode(raw, type=dict[str, int])
    check_u64_values(found.items())
    return found


class _PageError(msgspec.Struct, forbid_unknown_fields=True):
    """An error recorded instead of a page of the module's memory."""

    errno: str


def _parse_module(raw: msgspec.Raw) -> ModuleMemory:
    pages = msgspec.json.decode(raw, type=dict[str, str | _PageError])
    return parse_memory(
        {key: parse_errno(page.errno) if isinstance(page, _PageError) else page for key, page in pages.items()}
    )
