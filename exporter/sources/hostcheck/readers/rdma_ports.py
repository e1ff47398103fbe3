"""Ports of RDMA devices, from sysfs and RDMA netlink."""

import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from exporter.core.source import Failure
from exporter.linux.cached_file import read_once, read_text
from exporter.linux.infiniband import is_placeholder, parse_netdev_speed, parse_numbered, parse_rate, port_numbers
from exporter.linux.pci import pci_address
from exporter.linux.rdma_reader import RdmaReader
from exporter.preflight.facts import Gid, RdmaPortFacts
from exporter.sources.common.failures import failure_of
from exporter.sources.rdma.attributes import PLACEHOLDER_DRIVER, identify_driver
from exporter.sources.rdma.ports import select_ports

MAX_GIDS = 256
"""Entries of a GID table that are read."""

MAX_PKEYS = 128
"""Entries of a table of partition keys that are read."""

_HEX = re.compile(r"0x[0-9a-fA-F]{1,4}")


def read_rdma_ports(sysfs: Path, reader: RdmaReader, failures: list[Failure]) -> Sequence[RdmaPortFacts]:
    """Read the ports of all RDMA devices that the source `rdma` reads; blocks. A device that fails is a failure."""
    folder = sysfs / "class" / "infiniband"
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  # names alone
    except FileNotFoundError:
        return []
    found: list[RdmaPortFacts] = []
    for name in names:
        try:
            found += _read_device(folder / name, sysfs / "class" / "net", reader)
        except OSError as error:
            failures.append(failure_of(name, error, folder / name))
    return found


def _read_device(device: Path, net: Path, reader: RdmaReader) -> Iterator[RdmaPortFacts]:
    numbers = port_numbers(device)
    selection = select_ports(device, net, numbers, reader)
    if selection.is_plane:
        return
    driver = identify_driver(device, numbers)
    for number, netdev in selection.netdevs.items():
        port = device / "ports" / str(number)
        link_layer = read_text(port / "link_layer")
        rate = read_once(port / "rate") or b""
        parsed = parse_rate(rate)
        speed = None if parsed is None else parsed.bytes_per_second
        if PLACEHOLDER_DRIVER in driver and link_layer == "Ethernet" and is_placeholder(rate):
            speed = parse_netdev_speed(read_once(net / netdev / "speed") or b"") if netdev else None
        yield RdmaPortFacts(
            device=device.name,
            port=number,
            netdev=netdev,
            pci=pci_address(device),
            driver=driver.bound or driver.recognised,
            link_layer=link_layer,
            state=parse_numbered(read_once(port / "state") or b""),
            physical_state=parse_numbered(read_once(port / "phys_state") or b""),
            rate=None if speed is None else speed * 8,
            sm_lid=_hexadecimal(read_text(port / "sm_lid")),
            pkeys=_pkeys(port / "pkeys"),
            gids=_gids(port),
            firmware=read_text(device / "fw_ver"),
            board=read_text(device / "board_id"),
        )


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if _HEX.fullmatch(text) else None


def _pkeys(folder: Path) -> Sequence[int] | None:
    try:
        names = sorted(os.listdir(folder), key=lambda name: (len(name), name))[:MAX_PKEYS]  # noqa: PTH208  # likewise
    except OSError:
        return None
    keys = [_hexadecimal(read_text(folder / name)) for name in names]
    return [key for key in keys if key]


def _gids(port: Path) -> Sequence[Gid] | None:
    """Read the entries that are in use; None if the table is not visible, or no entry can be read."""
    try:
        names = os.listdir(port / "gids")  # noqa: PTH208  # likewise
    except OSError:
        return None
    found = []
    for name in sorted(names, key=lambda name: (len(name), name))[:MAX_GIDS]:
        address = _address(read_text(port / "gids" / name))
        kind = read_text(port / "gid_attrs" / "types" / name)
        if address is not None and name.isdecimal() and any(address[8:]):
            found.append(Gid(index=int(name), address=address, kind=kind))
    return found


def _address(text: str) -> bytes | None:
    try:
        return socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return None
