"""Cache of the neighbours whose frames the exporter received, until their Time To Live expires."""

from collections.abc import Mapping
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.lldp.frames import Advertisement, LldpDecodeError, parse_frame
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.common.failures import failure_of

MAX_NEIGHBOURS = 16
"""Neighbours per device: a switch is one, behind a switch that forwards LLDP there are several."""


class LldpNeighbour(NamedTuple):
    """The last advertisement of a neighbour, and the time at which it expires."""

    advertisement: Advertisement
    expires: float


class NeighbourCache:
    """The neighbours of each device, by Chassis ID and Port ID."""

    def __init__(self) -> None:
        self._neighbours: dict[str, dict[tuple[str, str], LldpNeighbour]] = {}
        self._errors: dict[str, Exception] = {}

    def receive(self, device: str, frame: bytes, now: float) -> None:
        """Store the advertisement of a frame; new neighbours over the limit are dropped.

        A neighbour that shuts down sends an advertisement with a Time To Live of 0.
        """
        try:
            advertisement = parse_frame(frame)
        except LldpDecodeError as error:
            self._errors[device] = error
            return
        neighbours = self._neighbours.setdefault(device, {})
        key = (advertisement.chassis, advertisement.port)
        if key in neighbours or len(neighbours) < MAX_NEIGHBOURS:
            neighbours[key] = LldpNeighbour(advertisement, now + advertisement.ttl)

    def advertisements(self, links: Mapping[int, NetworkLink], now: float) -> dict[str, list[Advertisement]]:
        """Drop what expired, and the neighbours of devices that are removed or down; return the rest by device."""
        names = {link.name for link in links.values() if link.carrier}
        self._neighbours = {
            name: {key: one for key, one in neighbours.items() if one.expires > now}
            for name, neighbours in self._neighbours.items()
            if name in names
        }
        return {name: [one.advertisement for one in found.values()] for name, found in self._neighbours.items()}

    def take_failures(self) -> list[Failure]:
        """Return and clear the failures of malformed frames."""
        failures = [failure_of(device, error, f"frame received on {device}") for device, error in self._errors.items()]
        self._errors.clear()
        return failures
