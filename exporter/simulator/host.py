"""The files of the simulated host: a sysfs tree of its PCI functions, and the directory of recordings of its NICs.

The exporter keeps counter files open and reads them in place, so they are rewritten in place: each keeps its inode and
its size, the text is padded with newlines, and one write replaces all of it. That is as atomic as a regular file can
be: the kernel copies these bytes in two or three machine words, and only a read in the same nanosecond returns a mixed
text (one in four million, when both sides do nothing else). Files whose text does not change are not written.
Recordings are replaced by renaming. Everything here blocks and has to run in a thread.

There are no recordings of RDMA netlink: the files contain the same facts of these devices.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from exporter.simulator import pci
from exporter.simulator.ports import RAIL_SPEED, Host, Nic
from exporter.simulator.recording import BOARD, FIRMWARE, recording

COUNTER_SIZE = 24
"""Size of a counter's file in bytes: 64 bits have 20 digits."""

STATE_SIZE = 32

FIRST_INDEX = 2
"""ifindex of the first network device; that of the loopback device is 1."""

_ZERO_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
)
"""Files of `counters` that remain 0."""

_ZERO_HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "out_of_buffer",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "req_rnr_retries_exceeded",
    "req_transport_retries_exceeded",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
)
"""Files of `hw_counters` that remain 0."""


class HostFiles:
    """Writes the files of the host below a directory.

    Attributes:
        sysfs: Directory in place of /sys.
        recordings: Directory of NIC recordings.
    """

    def __init__(self, folder: Path, host: Host) -> None:
        """Args: folder: Directory for the files. host: The model of the host."""
        self.sysfs = folder / "sys"
        self.recordings = folder / "nic"
        self._host = host
        self._nics = (host.management, *host.rails)
        self._indices: dict[str, int] = {}  # ifindex by name of the present network devices
        self._next_index = FIRST_INDEX
        self._written: dict[Path, bytes] = {}

    def create(self) -> None:
        """Create the tree.

        Raises:
            OSError: It cannot be created.
        """
        self.recordings.mkdir(parents=True)
        for nic in self._nics:
            self._create_bridges_and_gpu(nic)
        _facts(self.sysfs / "class" / "misc" / "rdma_cm", {"dev": "10:122"})
        self.write()

    def write(self) -> None:
        """Update all files from the model.

        Raises:
            OSError: The directory was removed, or the file system is full.
        """
        for nic in self._nics:
            if self._host.has_fault("missing-port", nic):
                self._remove_nic(nic)
            else:
                self._write_nic(nic)

    def _write_nic(self, nic: Nic) -> None:
        """Update the files of a NIC; one that was absent is created, with another ifindex."""
        name, function = nic.port.name, self._function(nic)
        is_new = name not in self._indices
        if is_new:
            self._indices[name] = self._next_index
            self._next_index += 1
            self._create_nic(nic, self._indices[name])
        for file, text in pci.nic_link(nic, slow=self._host.has_fault("slow-pcie", nic)).items():
            self._put(function / file, text, STATE_SIZE)
        self._put(function / "aer_dev_correctable", pci.nic_errors(nic), pci.AER_SIZE)
        if nic.device:
            folder = function / "infiniband" / nic.device / "ports" / "1"
            for file, value in {**_counters(nic), **_hw_counters(nic)}.items():
                self._put(folder / file, str(value), COUNTER_SIZE)
            for file, text in _states(nic).items():
                self._put(folder / file, text, STATE_SIZE)
        path = self.recordings / f"{name}.json"
        new = path.with_name(f".{path.name}.new")
        new.write_text(json.dumps(recording(self._host, nic, self._indices[name])), encoding="utf-8")
        new.replace(path)
        if is_new:  # last, so that readers that find the device by its links find it complete
            for link, target in self._links(nic).items():
                _link(link, target)

    def _remove_nic(self, nic: Nic) -> None:
        """Remove a NIC, if it is present: first its links, as the kernel does."""
        if self._indices.pop(nic.port.name, None) is None:
            return
        function = self._function(nic)
        for path in (*self._links(nic), self.recordings / f"{nic.port.name}.json"):
            path.unlink()
        shutil.rmtree(function)
        self._written = {path: data for path, data in self._written.items() if not path.is_relative_to(function)}

    def _function(self, nic: Nic) -> Path:
        """Return the directory of a NIC's PCI function."""
        return self.sysfs.joinpath("devices", *nic.slot.bridges, nic.pci)

    def _links(self, nic: Nic) -> dict[Path, Path]:
        """Return the links of classes and buses to a NIC, with their targets."""
        function = self._function(nic)
        found = {
            self.sysfs / "class" / "net" / nic.port.name: function / "net" / nic.port.name,
            self.sysfs / "bus" / "pci" / "devices" / nic.pci: function,
        }
        if nic.device:
            found[self.sysfs / "class" / "infiniband" / nic.device] = function / "infiniband" / nic.device
            verbs = _verbs(function, nic)
            found[self.sysfs / "class" / verbs.parent.name / verbs.name] = verbs
        return found

    def _put(self, path: Path, text: str, size: int) -> None:
        """Replace a file's text by one write of its full size, so that no reader sees a shorter one."""
        data = text.encode().ljust(size, b"\n")
        if self._written.get(path) == data:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        self._written[path] = data

    def _create_bridges_and_gpu(self, nic: Nic) -> None:
        """Create the bridges above a NIC, and the GPU below the same PCIe switch with its bridge."""
        bridges_above = nic.slot.bridges
        bridges = [self.sysfs.joinpath("devices", *bridges_above[:end]) for end in range(2, len(bridges_above) + 1)]
        gpus = []
        if nic.slot.gpu:
            bridge, gpu = nic.slot.gpu
            bridges.append(bridges[-1].with_name(bridge))
            gpus.append(bridges[-1] / gpu)
        for found, facts in ((bridges, pci.bridge_facts(nic)), (gpus, pci.gpu_facts(nic))):
            for function in found:
                _facts(function, facts)
                _link(self.sysfs / "bus" / "pci" / "devices" / function.name, function)

    def _create_nic(self, nic: Nic, index: int) -> None:
        """Create the directories of a PCI function and its devices."""
        function = self._function(nic)
        _facts(function, pci.nic_facts(nic))
        netdev = function / "net" / nic.port.name
        _facts(netdev, {"address": nic.mac, "dev_port": "0", "ifindex": str(index)})
        (netdev / "device").symlink_to(Path("..", ".."))
        if nic.device:
            device = function / "infiniband" / nic.device
            facts = {
                "node_guid": _guid(nic.mac),
                "fw_ver": FIRMWARE,
                "hca_type": "MT4129",
                "board_id": BOARD,
                "node_type": "1: CA",
            }
            _facts(device, facts)
            verbs = _verbs(function, nic)
            _facts(verbs, {"ibdev": nic.device, "dev": f"231:{192 + int(verbs.name.removeprefix('uverbs'))}"})
            _facts(device / "ports" / "1", {"link_layer": "Ethernet"})
            _facts(device / "ports" / "1" / "counters", {})
            _facts(device / "ports" / "1" / "hw_counters", {"lifespan": "12"})
            (device / "device").symlink_to(Path("..", ".."))


def _facts(folder: Path, facts: Mapping[str, str]) -> None:
    """Create a directory with files that never change."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in facts.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def _link(path: Path, target: Path) -> None:
    """Create a relative link within the tree, so that the tree can be moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def _verbs(function: Path, nic: Nic) -> Path:
    """Return the directory of the character device of a NIC's RDMA device."""
    return function / "infiniband_verbs" / f"uverbs{nic.device.rpartition('_')[2]}"


def _guid(mac: str) -> str:
    """Return the node GUID for a MAC address, derived as by the factory."""
    digits = mac.replace(":", "")
    digits = f"{digits[:6]}0300{digits[6:]}"
    return ":".join(digits[place : place + 4] for place in range(0, 16, 4))


def _counters(rail: Nic) -> dict[str, int]:
    """Return the files of `counters`; data counters are in units of four bytes."""
    port = rail.port
    received, sent = port.packets("receive", ["rdma"]), port.packets("transmit", ["rdma"])
    values = dict.fromkeys(_ZERO_COUNTERS, 0) | {
        "port_rcv_data": port.counted_bytes("receive", ["rdma"]) // 4,
        "port_xmit_data": port.counted_bytes("transmit", ["rdma"]) // 4,
        "port_rcv_packets": received,
        "port_xmit_packets": sent,
        "unicast_rcv_packets": received,
        "unicast_xmit_packets": sent,
        "link_downed": min(port.counters["link_down"], 255),
        "symbol_error": min(port.counters["symbol_errors"], 65535),
    }
    return {f"counters/{name}": value for name, value in values.items()}


def _hw_counters(rail: Nic) -> dict[str, int]:
    """Return the files of `hw_counters`; queue counters have 32 bits."""
    counters = rail.port.counters
    values = dict.fromkeys(_ZERO_HW_COUNTERS, 0) | {
        "np_ecn_marked_roce_packets": counters["ecn_marked"],
        "np_cnp_sent": counters["cnp_sent"],
        "rp_cnp_handled": counters["cnp_handled"],
        "out_of_sequence": counters["out_of_sequence"] % 2**32,
        "packet_seq_err": counters["sequence_errors"] % 2**32,
        "local_ack_timeout_err": counters["ack_timeouts"] % 2**32,
        "rp_cnp_ignored": counters["cnp_ignored"],
        "rx_write_requests": counters["write_requests"] % 2**32,
    }
    return {f"hw_counters/{name}": value for name, value in values.items()}


def _states(rail: Nic) -> dict[str, str]:
    """Return the files about the link, as of mlx5 on Ethernet, where a port that is down has the rate 40 Gb/sec."""
    if not rail.port.up:
        return {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}
    rate = "400 Gb/sec (4X NDR)" if rail.port.speed == RAIL_SPEED else "100 Gb/sec (4X EDR)"
    return {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate}
