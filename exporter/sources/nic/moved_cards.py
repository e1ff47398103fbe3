"""Keeps the series of a card going while it is in the namespace of a pod, where the source `pods` finds it."""

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.sources.common.host_ports import is_hardware, is_infiniband_port
from exporter.sources.common.moved_devices import Identity, MovedDevice, MovedDevices, identity_of
from exporter.sources.nic.device import DeviceReading

MAX_LOOKS = 3
"""Times that the host and the namespaces are searched for a card that was there at the last read: it may be moved
between two looks."""

Links = Mapping[str, NetworkLink]


class MovedCards:
    """The cards that are in other namespaces, by their names on the host.

    Attributes:
        devices: The cards by name, as of the last `complete`.
        epochs: By name of a card on the host or in a namespace, a number that remains while it is moved.
    """

    def __init__(self, shared: MovedDevices) -> None:
        """Store what finds the cards."""
        self.devices: dict[str, MovedDevice] = {}
        self.epochs: dict[str, int] = {}
        self._shared = shared
        self._names: dict[Identity, str] = {}  # the cards of the last read
        self._here: dict[Identity, int] = {}  # by card of the host its ifindex at the last read
        self._epochs: dict[Identity, int] = {}

    async def complete(
        self,
        list_host: Callable[[], Awaitable[Links]],
        selects: Callable[[NetworkLink], bool],
        is_virtual: Callable[[str], bool],
    ) -> dict[str, NetworkLink]:
        """Return the links of the host, and those of cards in other namespaces under their names on the host.

        The index of such a link is negative: no device of the host has it.

        Args:
            list_host: Returns the selected links of the host by name.
            selects: Whether a card is selected, by its link with its name on the host.
            is_virtual: Whether a device of the last read is a virtual function: one that has gone is not searched for.
        """
        links, found = dict(await list_host()), dict[Identity, MovedDevice]()
        here = _cards(links.values())
        if self._shared.is_provided:
            for look in range(MAX_LOOKS):
                missing = {key for key in self._names.keys() - here.keys() if not is_virtual(self._names[key])}
                known = {identity_of(one.link) for one in self.devices.values()}
                moved = await self._shared.find(search=look > 0 or bool(missing - known))
                found = {identity_of(one.link): one for one in moved}
                if missing <= found.keys():
                    break
                links = dict(await list_host())
                here = _cards(links.values())
        moved_links = self._name(found, here, links, selects)
        self._keep(here, moved_links)
        return links | moved_links

    def have_moved(self, results: Mapping[str, DeviceReading | Exception]) -> bool:
        """Return whether a card left its namespace while it was read."""
        if not self._shared.is_provided:
            return False
        return any(
            isinstance(result, OSError) and result.errno == errno.ENODEV
            if isinstance(result, Exception)
            else any(failure.reason == "enodev" for failure in result.failures)
            for name, result in results.items()
            if name in self.epochs
        )

    def _name(
        self,
        found: Mapping[Identity, MovedDevice],
        here: Mapping[Identity, NetworkLink],
        links: Links,
        selects: Callable[[NetworkLink], bool],
    ) -> dict[str, NetworkLink]:
        """Store the selected cards of other namespaces, and return their links under their names on the host."""
        self.devices = {}
        renamed: dict[str, NetworkLink] = {}
        for key, one in found.items():
            name = self._shared.host_name(one.link, {*links, *renamed})
            link = replace(one.link, name=name, ifindex=-one.link.ifindex)
            if key not in here and name not in renamed and selects(link):
                renamed[name], self.devices[name] = link, one
        return renamed

    def _keep(self, here: Mapping[Identity, NetworkLink], moved: Links) -> None:
        """Update names and epochs: a card has the epoch that it had, unless it was made again on the host."""
        epochs = {}
        for key, link in here.items():
            was_made_again = self._here.get(key, link.ifindex) != link.ifindex
            known = self._epochs.get(key)
            epochs[key] = link.ifindex if known is None or was_made_again else known
        for link in moved.values():
            epochs[identity_of(link)] = self._epochs.get(identity_of(link), link.ifindex)
        self._epochs = epochs
        self._here = {key: link.ifindex for key, link in here.items()}
        self._names = {identity_of(link): link.name for link in (*here.values(), *moved.values())}
        self.epochs = {self._names[key]: epoch for key, epoch in epochs.items()}


def is_card(link: NetworkLink) -> bool:
    """Return whether a link is that of a network card, or of its InfiniBand port."""
    return is_hardware(link) or is_infiniband_port(link)


def _cards(links: Iterable[NetworkLink]) -> dict[Identity, NetworkLink]:
    return {identity_of(link): link for link in links if is_card(link)}
