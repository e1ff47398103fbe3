"""The simulated host in files: a tree as sysfs shows its RDMA devices, and the folder of recordings of its NICs.

The exporter keeps counter files open and reads them in place, so they are rewritten in place: each keeps its inode
and its size, the text is filled up with newlines, and one write replaces all of it. That is as whole as a plain file
can be: the kernel copies those bytes in two or three machine words, and only a read in the same nanosecond would meet
it between them (one in four million, when both sides do nothing else). Files that do not change are left alone.
Recordings are replaced by renaming. Everything here blocks and belongs in a thread.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from exporter.simulator.ports import KERNEL, RAIL_SPEED, WAYS, Nic
from exporter.simulator.traffic import Training

COUNTER_SIZE = 24
"""Bytes of a counter's file: 64 bits have 20 digits."""

STATE_SIZE = 32

MTU = 9000

_FIRMWARE = "28.39.1002"
_BOARD = "MT_0000000838"

_QUIET_COUNTERS = (
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
"""Files of `counters` in which nothing happens."""

_QUIET_HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
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
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
)
"""The same of `hw_counters`."""


class HostFiles:
    """Writes the host of a model below a folder.

    Attributes:
        sysfs: What stands for /sys.
        recordings: The folder of NIC recordings.
    """

    def __init__(self, folder: Path, training: Training) -> None:
        """Take the folder, and what is shown in it."""
        self.sysfs = folder / "sys"
        self.recordings = folder / "nic"
        self._training = training
        self._written: dict[Path, bytes] = {}

    def create(self) -> None:
        """Make the tree.

        Raises:
            OSError: It cannot be made.
        """
        self.recordings.mkdir(parents=True)
        for place, nic in enumerate((self._training.management, *self._training.rails)):
            self._create_nic(nic, place)
        self.write()

    def write(self) -> None:
        """Bring all files to what the model says now.

        Raises:
            OSError: The folder is gone, or full.
        """
        for rail in self._training.rails:
            folder = self.sysfs / "class" / "infiniband" / rail.device / "ports" / "1"
            for name, value in {**_counters(rail), **_hw_counters(rail)}.items():
                self._put(folder / name, str(value), COUNTER_SIZE)
            for name, text in _states(rail).items():
                self._put(folder / name, text, STATE_SIZE)
        for place, nic in enumerate((self._training.management, *self._training.rails)):
            path = self.recordings / f"{nic.port.name}.json"
            new = path.with_name(f".{path.name}.new")
            new.write_text(json.dumps(_recording(nic, place + 2), indent=1), encoding="utf-8")
            new.replace(path)

    def _put(self, path: Path, text: str, size: int) -> None:
        """Replace a file's text by one write of its full size, so that nobody sees a shorter one."""
        data = text.encode().ljust(size, b"\n")
        if self._written.get(path) == data:
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        self._written[path] = data

    def _create_nic(self, nic: Nic, place: int) -> None:
        """Make the folders of a PCI function, its devices, and the links of the classes to them."""
        function = self.sysfs / "devices" / nic.bridge / nic.pci
        driver, vendor, model = _identity(nic)
        _facts(function, {"uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={nic.pci}", "vendor": vendor, "device": model})
        name = nic.port.name
        _facts(function / "net" / name, {"address": nic.mac, "dev_port": "0", "ifindex": str(place + 2)})
        _link(self.sysfs / "class" / "net" / name, function / "net" / name)
        (function / "net" / name / "device").symlink_to(Path("..", ".."))
        if not nic.device:
            return
        device = function / "infiniband" / nic.device
        facts = {
            "node_guid": _guid(nic.mac),
            "fw_ver": _FIRMWARE,
            "hca_type": "MT4129",
            "board_id": _BOARD,
            "node_type": "1: CA",
        }
        _facts(device, facts)
        _facts(device / "ports" / "1", {"link_layer": "Ethernet"})
        _facts(device / "ports" / "1" / "counters", {})
        _facts(device / "ports" / "1" / "hw_counters", {"lifespan": "12"})
        (device / "device").symlink_to(Path("..", ".."))
        _link(self.sysfs / "class" / "infiniband" / nic.device, device)


def _facts(folder: Path, facts: Mapping[str, str]) -> None:
    """Make a folder of files that never change."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in facts.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def _link(path: Path, target: Path) -> None:
    """Link to another place of the tree, relatively, so that the tree can be moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def _identity(nic: Nic) -> tuple[str, str, str]:
    """Give the driver, and the PCI numbers of vendor and model."""
    return ("mlx5_core", "0x15b3", "0x1021") if nic.device else ("ice", "0x8086", "0x159b")


def _guid(mac: str) -> str:
    """Make a node GUID of an address, as the cards come from the factory."""
    digits = mac.replace(":", "")
    digits = f"{digits[:6]}0300{digits[6:]}"
    return ":".join(digits[place : place + 4] for place in range(0, 16, 4))


def _counters(rail: Nic) -> dict[str, int]:
    """Give the files of `counters`; data is in words of four bytes."""
    port = rail.port
    received, sent = port.packets("receive", ["rdma"]), port.packets("transmit", ["rdma"])
    values = dict.fromkeys(_QUIET_COUNTERS, 0) | {
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
    """Give the files of `hw_counters`; those of queues have 32 bits."""
    counters = rail.port.counters
    values = dict.fromkeys(_QUIET_HW_COUNTERS, 0) | {
        "np_ecn_marked_roce_packets": counters["ecn_marked"],
        "np_cnp_sent": counters["cnp_sent"],
        "rp_cnp_handled": counters["cnp_handled"],
        "out_of_sequence": counters["out_of_sequence"] % 2**32,
        "packet_seq_err": counters["out_of_sequence"] % 2**32,
        "rx_write_requests": counters["write_requests"] % 2**32,
    }
    return {f"hw_counters/{name}": value for name, value in values.items()}


def _states(rail: Nic) -> dict[str, str]:
    """Give the files about the link, as mlx5 shows them on Ethernet: a port that is down has the speed of none."""
    if not rail.port.up:
        return {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}
    rate = "400 Gb/sec (4X NDR)" if rail.port.speed == RAIL_SPEED else "100 Gb/sec (4X EDR)"
    return {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate}


def _recording(nic: Nic, ifindex: int) -> dict[str, object]:
    """Give what the kernel says of a NIC, as exporter.linux.nic reads it."""
    port = nic.port
    changes = port.counters["carrier_changes"]
    kernel = {}
    for way, short in zip(WAYS, ("rx", "tx"), strict=True):
        kernel[f"{short}_packets"] = port.packets(way, KERNEL)
        kernel[f"{short}_bytes"] = port.counted_bytes(way, KERNEL)
        kernel |= {f"{short}_errors": 0, f"{short}_dropped": 0}
    return {
        "link": {
            "ifindex": ifindex,
            "admin_up": True,
            "carrier": port.up,
            "operstate": "up" if port.up else "down",
            "mtu": MTU if nic.device else 1500,
            "mac": nic.mac,
            "parent_dev_name": nic.pci,
            "parent_dev_bus_name": "pci",
            "phys_port_name": "p0" if nic.device else None,
            "carrier_changes": changes,
            "carrier_up_count": changes // 2,
            "carrier_down_count": changes - changes // 2,
            "stats": kernel,
        },
        "driver": {
            "name": _identity(nic)[0],
            "version": "6.8.0",
            "firmware": f"{_FIRMWARE} ({_BOARD})" if nic.device else "4.40 0x8001c967 1.3534.0",
            "bus": nic.pci,
        },
        "statistics": _mlx5(nic) if nic.device else _ice(nic),
        "settings": {
            "speed_bits_per_second": port.speed if port.up else None,
            "duplex": "full",
            "autoneg": True,
            "port": "fibre",
        },
    }


def _mlx5(nic: Nic) -> dict[str, int]:
    """Give statistics of the card by its driver's names; PFC counters are there for the priority that has it."""
    port, counters = nic.port, nic.port.counters
    values = {}
    for way, short in zip(WAYS, ("rx", "tx"), strict=True):
        values[f"{short}_packets"] = port.packets(way, KERNEL)
        values[f"{short}_bytes"] = port.counted_bytes(way, KERNEL)
        values[f"{short}_vport_rdma_unicast_packets"] = port.packets(way, ["rdma"])
        values[f"{short}_vport_rdma_unicast_bytes"] = port.counted_bytes(way, ["rdma"])
        values[f"{short}_packets_phy"] = port.packets(way)
        values[f"{short}_bytes_phy"] = port.wire_bytes(way)
        values[f"{short}_discards_phy"] = 0
    return values | {
        "tx_errors_phy": 0,
        "rx_crc_errors_phy": 0,
        "rx_symbol_err_phy": 0,
        "rx_out_of_buffer": 0,
        "rx_pcs_symbol_err_phy": counters["symbol_errors"],
        "rx_corrected_bits_phy": counters["fec_corrected_bits"],
        "link_down_events_phy": counters["link_down"],
        "rx_ecn_mark": 0,
        "rx_buffer_passed_thres_phy": 0,
        "tx_pause_storm_warning_events": 0,
        "tx_pause_storm_error_events": 0,
        "outbound_pci_buffer_overflow": 0,
        "rx_prio3_pause": counters["pause_frames"],
        "rx_prio3_pause_duration": counters["paused_microseconds"],
        "rx_prio3_pause_transition": counters["pause_transitions"],
        "tx_prio3_pause": 0,
        "tx_prio3_pause_duration": 0,
    }


def _ice(nic: Nic) -> dict[str, int]:
    """Give statistics of the card for management."""
    port = nic.port
    values = {}
    for way, short in zip(WAYS, ("rx", "tx"), strict=True):
        values[f"{short}_bytes.nic"] = port.wire_bytes(way)
        values[f"{short}_unicast.nic"] = port.packets(way, ["bulk"])
        values[f"{short}_multicast.nic"] = port.packets(way, ["multicast"])
        values |= {f"{short}_broadcast.nic": 0, f"{short}_errors.nic": 0}
        values |= {f"link_xon_{short}.nic": 0, f"link_xoff_{short}.nic": 0}
    return values | {"rx_dropped.nic": 0, "tx_dropped_link_down.nic": 0, "rx_crc_errors.nic": 0}
