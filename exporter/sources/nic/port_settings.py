"""Settings and state of a port, apart from its statistics: link mode, FEC, pause, DCB, reason why the link is down."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from exporter.core.table import LabelValues, Value
from exporter.linux.netlink.data_center_bridging import Dcb
from exporter.linux.netlink.ethtool_netlink import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.port_settings_labels import joined, on_off_label, priorities_label
from exporter.sources.nic.device_queries import SETTINGS_MAX_AGE_SECONDS, Answer, DeviceQueries

FEC, LINK_STATE, PAUSE = "FEC", "link state", "pause"
_LINK_MODES, _LINK_SETTINGS, _DCB = "link modes", "link settings", "DCB"

FEC_BLOCKS = ("fec_corrected_blocks_total", "fec_uncorrectable_blocks_total")

DRIVERS_REPORTING_TRUST = frozenset({"mlx5_core"})
"""Drivers that have DSCP application entries if and only if the port trusts DSCP; without any, it trusts PCP.

The kernel has no other interface for the trust mode. Ports of other drivers may trust DSCP without such entries.
"""


def link_signature(link: NetworkLink) -> tuple[object, ...]:
    """Return what changes in a link when its speed or settings may have changed."""
    return (link.ifindex, link.admin_up, link.carrier, link.operstate, link.carrier_changes)


def _query_setting(
    queries: DeviceQueries, query: str, call: Callable[[str], Answer], link: NetworkLink
) -> Answer | None:
    """Read a setting again when the link changed or the cached answer is too old."""
    return queries.query(query, call, max_age=SETTINGS_MAX_AGE_SECONDS, link_state=link_signature(link))


def query_link_modes(queries: DeviceQueries, link: NetworkLink, reader: NicReader) -> LinkModes:
    """Read the link mode by netlink, else by the older ioctl, which is used only for links that are up."""
    modes = _query_setting(queries, _LINK_MODES, reader.link_modes, link)
    if modes is None and queries.is_unsupported(_LINK_MODES) and link.carrier:
        settings = _query_setting(queries, _LINK_SETTINGS, reader.settings, link)
        if settings is not None:
            return LinkModes(settings.speed_bits_per_second, settings.duplex, settings.autoneg)
    return modes or LinkModes()


def speed_values(modes: LinkModes, link: NetworkLink) -> dict[str, Value]:
    """Return the speed by ending; empty while the link is down, even where the driver reports one."""
    bits = modes.speed_bits_per_second
    return {} if bits is None or not link.carrier else {"link_speed_bytes_per_second": bits / 8}


def query_fec(queries: DeviceQueries, reader: NicReader) -> tuple[Fec, dict[str, Value]]:
    """Read the active FEC and its block counters, the latter by ending.

    It is read each time, since FEC counters show a bad cable first: three firmware commands on mlx5, where the
    statistics need about thirty.
    """
    fec = queries.query(FEC, reader.fec) or Fec()
    counters = zip(FEC_BLOCKS, (fec.corrected_blocks, fec.uncorrectable_blocks), strict=True)
    return fec, {ending: value for ending, value in counters if value is not None}


class PortSettings(NamedTuple):
    """The settings of a port, read when its link changed, and at most SETTINGS_MAX_AGE_SECONDS later.

    Attributes:
        queries: The queries to the device.
        link: Its link.
        reader: The reader.
        rdma_folder: Folder of the RDMA devices of its PCI function; it exists only if there are any.
        driver: Name of its driver; "" if not known.
    """

    queries: DeviceQueries
    link: NetworkLink
    reader: NicReader
    rdma_folder: Path
    driver: str

    def pause(self) -> Pause:
        """Read the 802.3x pause settings."""
        return _query_setting(self.queries, PAUSE, self.reader.pause, self.link) or Pause()

    def read(self, fec: Fec, pause: Pause, *, with_down_count: bool) -> dict[str, Value]:
        """Read the settings and return values by ending.

        Args:
            fec: The active FEC.
            pause: The 802.3x pause settings.
            with_down_count: Whether to read how often the link went down (EXT_DOWN_CNT).
        """
        modes = query_link_modes(self.queries, self.link, self.reader)
        dcb = _query_setting(self.queries, _DCB, self.reader.dcb, self.link) or Dcb()
        settings = _settings_labels(modes, fec, pause, dcb, self.driver)
        found = self._link_values(modes) | self._state_values(with_down_count=with_down_count)
        return found | {"settings_info": settings} if any(settings) else found

    def _link_values(self, modes: LinkModes) -> dict[str, Value]:
        found = speed_values(modes, self.link)
        if modes.lanes is not None and self.link.carrier:
            found["link_lanes"] = modes.lanes
        # A port without RDMA is no rail: it may be slow on purpose, so its highest speed is not the expected one.
        if modes.max_speed_bits_per_second is not None and self.rdma_folder.exists():
            found["link_max_speed_bytes_per_second"] = modes.max_speed_bits_per_second / 8
        return found

    def _state_values(self, *, with_down_count: bool) -> dict[str, Value]:
        if self.link.carrier and not with_down_count:
            return {}
        state = _query_setting(self.queries, LINK_STATE, self.reader.link_state, self.link) or LinkState()
        found: dict[str, Value] = {}
        if state.reason and not self.link.carrier:
            found["link_down_reason_info"] = (state.reason,)
        if state.down_count is not None and with_down_count:
            found["link_down_total"] = state.down_count
        return found


def _settings_labels(modes: LinkModes, fec: Fec, pause: Pause, dcb: Dcb, driver: str) -> LabelValues:
    """Return the label values of the settings, "" for what is not known."""
    return (
        on_off_label(modes.autoneg),
        modes.duplex or "",
        fec.active or "",
        _pause_label(pause),
        priorities_label(dcb.pfc),
        trust_of(dcb, driver),
        joined(dcb.classes or ()),
        joined(dcb.priority_classes or ()),
    )


def _pause_label(pause: Pause) -> str:
    if pause.receive is None or pause.transmit is None:
        return ""
    if pause.receive and pause.transmit:
        return "both"
    return "receive" if pause.receive else "transmit" if pause.transmit else "none"


def trust_of(dcb: Dcb, driver: str) -> str:
    """Return `dscp` or `pcp`; empty where the driver does not report what a port trusts."""
    if dcb.dscp_rules:
        return "dscp"
    return "pcp" if dcb.dscp_rules is False and driver in DRIVERS_REPORTING_TRUST else ""
