"""Network devices that are hardware: links, DCB, pause, files of congestion control, and settings of IPv4."""

import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar

from exporter.core.source import Failure, Host
from exporter.linux.cached_file import read_text
from exporter.linux.netlink.data_center_bridging import Dcb
from exporter.linux.netlink.ethtool_netlink import LinkModes, Pause
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.linux.pci import class_device_driver
from exporter.linux.untrusted_files import read_untrusted
from exporter.preflight.facts import NetworkPortFacts
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import is_hardware
from exporter.sources.hostcheck.readers.switch_ports import read_switch_ports
from exporter.sources.nic.port_settings import trust_of

Answer = TypeVar("Answer")

ROLES = (("notification_point", "roce_np"), ("reaction_point", "roce_rp"))
"""Roles of congestion control, and the folders of the vendor's driver."""

PRIORITIES = 8

MAX_ROUTES = 1 << 20
"""Bytes of the routing table that are read."""

_NO_ANSWER = frozenset({errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EPERM})
"""Errors of a driver or device that does not have a setting."""


def read_network_ports(
    host: Host, reader: NicReader, failures: list[Failure], lldp: Path
) -> Sequence[NetworkPortFacts]:
    """Read the hardware devices of this network namespace; blocks. An answer that fails is a failure.

    Args:
        host: This host.
        reader: The reader of network devices.
        failures: Where failures are added.
        lldp: Folder in which systemd-networkd stores received frames.

    Raises:
        OSError: They cannot be listed.
    """
    links = [link for link in reader.links() if is_hardware(link)]
    networks = read_networks(host.procfs)
    neighbours = read_switch_ports(lldp, links)
    found = [
        replace(
            _read_port(host, link, reader, None if networks is None else networks.get(link.name, ()), failures),
            switch_port=neighbours.get(link.ifindex),
        )
        for link in links
    ]
    for name, error in reader.unreadable_links().items():
        failures.append(failure_of(name, error, name))
        found.append(NetworkPortFacts(device=name))
    return found


def _read_port(
    host: Host, link: NetworkLink, reader: NicReader, networks: Sequence[str] | None, failures: list[Failure]
) -> NetworkPortFacts:
    def asked(call: Callable[[str], Answer], nothing: Answer) -> Answer:
        try:
            return call(link.name)
        except OSError as error:
            if error.errno not in _NO_ANSWER:
                failures.append(failure_of(link.name, error, link.name))
            return nothing

    folder = host.sysfs / "class" / "net" / link.name
    driver = class_device_driver(folder)
    modes, pause, dcb = (
        asked(reader.link_modes, LinkModes()),
        asked(reader.pause, Pause()),
        asked(reader.dcb, Dcb()),
    )
    speed = modes.speed_bits_per_second
    has_pause = pause.receive is not None and pause.transmit is not None
    return NetworkPortFacts(
        device=link.name,
        carrier=link.carrier,
        mtu=link.mtu,
        speed=float(speed) if speed is not None and link.carrier else None,
        max_speed=None if modes.max_speed_bits_per_second is None else float(modes.max_speed_bits_per_second),
        pfc=dcb.pfc,
        trust=trust_of(dcb, driver) or _known_trust(read_text(folder / "qos" / "trust")),
        pause=(bool(pause.receive), bool(pause.transmit)) if has_pause else None,
        ecn=_read_congestion_control(folder / "ecn"),
        cnp_dscp=_small(read_text(folder / "ecn" / "roce_np" / "cnp_dscp"), 63),
        cnp_priority=_small(read_text(folder / "ecn" / "roce_np" / "cnp_802p_prio"), PRIORITIES - 1),
        rp_filter=_ipv4_setting(host.procfs, link.name, "rp_filter"),
        arp_ignore=_ipv4_setting(host.procfs, link.name, "arp_ignore"),
        arp_announce=_ipv4_setting(host.procfs, link.name, "arp_announce"),
        networks=networks,
    )


def _known_trust(text: str) -> str:
    return text if text in {"dscp", "pcp"} else ""


def _read_congestion_control(folder: Path) -> Mapping[str, Mapping[int, bool]]:
    """Read whether congestion control is on by role and priority; without the vendor's driver nothing is known."""
    found = {}
    for role, name in ROLES:
        values = {
            number: read_text(folder / name / "enable" / str(number))
            for number in range(PRIORITIES)
            if os.path.lexists(folder / name / "enable")
        }
        known = {number: value == "1" for number, value in values.items() if value in {"0", "1"}}
        if known:
            found[role] = known
    return found


def _small(text: str, most: int) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len("63") and int(text) <= most else None


def _ipv4_setting(procfs: Path, device: str, name: str) -> int | None:
    """Return the value that applies: the maximum of that of the device and that of all."""
    values = [read_text(procfs / "sys" / "net" / "ipv4" / "conf" / one / name) for one in ("all", device)]
    known = [int(value) for value in values if value.isascii() and value.isdecimal() and len(value) < 4]
    return max(known) if len(known) == len(values) else None


def read_networks(procfs: Path) -> Mapping[str, Sequence[str]] | None:
    """Read the IPv4 networks that each device is in, from its routes without a gateway; blocks.

    None if the routing table cannot be read, is malformed, or is too long.
    """
    try:
        data, _ = read_untrusted(str(procfs / "net" / "route"), MAX_ROUTES)
    except OSError:
        return None
    if not data.startswith(b"Iface") or len(data) > MAX_ROUTES:
        return None
    found: dict[str, list[str]] = defaultdict(list)
    for line in data.decode("ascii", "replace").splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:  # the mask is the eighth
            continue
        device, destination, gateway, mask = fields[0], fields[1], fields[2], fields[7]
        try:
            network = IPv4Network((_address(destination), _address(mask)))
        except ValueError:
            continue
        if gateway.strip("0") == "" and 0 < network.prefixlen < network.max_prefixlen:
            found[device].append(str(network))
    return found


def _address(text: str) -> str:
    """Return an address of the routing table, which the kernel prints as a number of the host's byte order.

    Raises:
        ValueError: It is malformed.
    """
    number = int(text, 16)
    if not 0 <= number < 1 << 32:
        raise ValueError(f"not an address: {text[:20]!r}")
    return socket.inet_ntoa(struct.pack("=I", number))
