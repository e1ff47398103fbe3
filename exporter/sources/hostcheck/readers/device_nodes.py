"""Character devices of RDMA devices: whether programs of this /dev can open them. None is opened."""

import os
from pathlib import Path

from exporter.linux.character_devices import (
    CONNECTIONS,
    NODES,
    VERBS,
    CharacterDevice,
    CharacterDevices,
    is_listed,
    read_character_devices,
)
from exporter.preflight.facts import DeviceNodes, Node


def read_device_nodes(sysfs: Path, dev: Path | None) -> DeviceNodes:
    """Read the states; blocks.

    Args:
        sysfs: Root of sysfs.
        dev: The /dev of the programs; None if it is not known, so that nodes are unknown.

    Raises:
        OSError: A class of sysfs cannot be listed.
    """
    if not is_listed(sysfs):  # as in a recording of another host
        return DeviceNodes()
    found = read_character_devices(sysfs, dev)
    devices = sorted(os.listdir(sysfs / "class" / "infiniband"))  # noqa: PTH208  # names alone
    return DeviceNodes(
        verbs={name: _state(found, CharacterDevice(VERBS, name), dev) for name in devices},
        connections=_state(found, CharacterDevice(CONNECTIONS), dev),
    )


def _state(found: CharacterDevices, device: CharacterDevice, dev: Path | None) -> Node:
    if device not in found.found:
        return Node.NOT_CREATED if found.has(device) is False else Node.UNKNOWN
    has_node = found.found[device]
    if dev is None or has_node is None:
        return Node.UNKNOWN
    if not has_node:
        return Node.MISSING
    return Node.PRESENT if os.access(dev / NODES / found.nodes[device], os.R_OK | os.W_OK) else Node.DENIED
