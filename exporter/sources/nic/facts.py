"""What a port is asked beside its statistics: how its link runs, how it is set up, why it is down."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from exporter.core.table import LabelValues, Value
from exporter.linux.netlink.dcb import Dcb
from exporter.linux.netlink.ethtool import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.nic_reader import NicReader
from exporter.sources.nic.questions import SLOWLY, Asking

FEC, LINK_STATE, PAUSE = "FEC", "link state", "pause"
_MODES = "link modes"

FEC_BLOCKS = ("fec_corrected_blocks_total", "fec_uncorrectable_blocks_total")

MIRRORS_TRUST = frozenset({"mlx5_core"})
"""Drivers that keep rules for DSCP where the port goes by DSCP, and none where it goes by the tag.

Nothing but those rules says what a port goes by. Other drivers may go by DSCP without any.
"""


def signature(link: Link) -> tuple[object, ...]:
    """Give what of a link tells that its speed and set-up may be others."""
    return (link.ifindex, link.admin_up, link.carrier, link.operstate, link.carrier_changes)


def link_modes(asking: Asking, link: Link, reader: NicReader) -> LinkModes:
    """Ask how a link runs, by netlink or by the older ioctl, which is asked only of links that are up."""
    of = signature(link)
    modes = asking.ask(_MODES, reader.link_modes, age=SLOWLY, of=of)
    if modes is None and asking.lacks(_MODES) and link.carrier:
        settings = asking.ask("link settings", reader.settings, age=SLOWLY, of=of)
        if settings is not None:
            return LinkModes(settings.speed_bits_per_second, settings.duplex, settings.autoneg)
    return modes or LinkModes()


def speed(modes: LinkModes, link: Link) -> dict[str, Value]:
    """Give the speed of a link; none while it is down, whatever the driver says."""
    bits = modes.speed_bits_per_second
    return {} if bits is None or not link.carrier else {"link_speed_bytes_per_second": bits / 8}


def fec(asking: Asking, reader: NicReader) -> tuple[Fec, dict[str, Value]]:
    """Ask for the forward error correction in use, and what it mended.

    It is asked at each read, since a bad cable shows there before anywhere else: three firmware commands on mlx5,
    where the statistics are about thirty.
    """
    found = asking.ask(FEC, reader.fec) or Fec()
    counts = zip(FEC_BLOCKS, (found.corrected_blocks, found.uncorrectable_blocks), strict=True)
    return found, {ending: value for ending, value in counts if value is not None}


class Facts(NamedTuple):
    """What rarely changes of a port: asked when the link changed, and now and then.

    Attributes:
        asking: The device.
        link: Its link.
        reader: Asks.
        rdma: Folder of the RDMA devices of its function, which those without RDMA lack.
        driver: Name of its driver; empty if that is not known.
    """

    asking: Asking
    link: Link
    reader: NicReader
    rdma: Path
    driver: str

    def pause(self) -> Pause:
        """Ask how 802.3x pauses are set."""
        return self.asking.ask(PAUSE, self.reader.pause, age=SLOWLY, of=signature(self.link)) or Pause()

    def read(self, active: Fec, pause: Pause, *, down_count: bool) -> dict[str, Value]:
        """Give values by ending.

        Args:
            active: The forward error correction in use.
            pause: How 802.3x pauses are set.
            down_count: Whether the kernel is to be asked how often the driver saw the link go down.
        """
        modes = link_modes(self.asking, self.link, self.reader)
        dcb = self.asking.ask("DCB", self.reader.dcb, age=SLOWLY, of=signature(self.link)) or Dcb()
        words = _words(modes, active, pause, dcb, self.driver)
        found = self._link(modes) | self._state(down_count=down_count)
        return found | {"settings_info": words} if any(words) else found

    def _link(self, modes: LinkModes) -> dict[str, Value]:
        found = speed(modes, self.link)
        if modes.lanes is not None and self.link.carrier:
            found["link_lanes"] = modes.lanes
        # A port without RDMA is no rail: it may be slow on purpose, and its fastest mode is not expected of it.
        if modes.max_speed_bits_per_second is not None and self.rdma.exists():
            found["link_max_speed_bytes_per_second"] = modes.max_speed_bits_per_second / 8
        return found

    def _state(self, *, down_count: bool) -> dict[str, Value]:
        if self.link.carrier and not down_count:
            return {}
        state = self.asking.ask(LINK_STATE, self.reader.link_state, age=SLOWLY, of=signature(self.link)) or LinkState()
        found: dict[str, Value] = {}
        if state.reason and not self.link.carrier:
            found["link_down_reason_info"] = (state.reason,)
        if state.down_count is not None and down_count:
            found["link_down_total"] = state.down_count
        return found


def _words(modes: LinkModes, active: Fec, pause: Pause, dcb: Dcb, driver: str) -> LabelValues:
    """Put the set-up in words, empty for what is not known."""
    return (
        "" if modes.autoneg is None else "on" if modes.autoneg else "off",
        modes.duplex or "",
        active.active or "",
        _pauses(pause),
        "" if dcb.pfc is None else _listed(dcb.pfc) or "none",
        _trust(dcb, driver),
        _listed(dcb.classes or ()),
        _listed(dcb.priority_classes or ()),
    )


def _pauses(pause: Pause) -> str:
    if pause.receive is None or pause.transmit is None:
        return ""
    if pause.receive and pause.transmit:
        return "both"
    return "receive" if pause.receive else "transmit" if pause.transmit else "none"


def _trust(dcb: Dcb, driver: str) -> str:
    if dcb.dscp_rules:
        return "dscp"
    return "pcp" if dcb.dscp_rules is False and driver in MIRRORS_TRUST else ""


def _listed(items: Iterable[int | str]) -> str:
    return ",".join(map(str, items))
