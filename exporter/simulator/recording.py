"""The recording of a simulated NIC: the kernel's replies about it, which the exporter replays."""

from math import sin
from types import MappingProxyType

from exporter.simulator import modules
from exporter.simulator.pci import identity
from exporter.simulator.ports import (
    DIRECTIONS,
    KERNEL,
    MANAGEMENT_SPEED,
    RAIL_SPEED,
    Host,
    Nic,
)

MTU = 9000

FIRMWARE = "28.39.1002"
BOARD = "MT_0000000838"

DOWN_REASONS = MappingProxyType({"link-down": "no_cable", "flapping-link": "cable_issue"})
"""Reason of a link that is down, in the kernel's terms, by fault."""

DIM_LANE = 1
"""Index of the lane with too little received power in the fault `dirty-optic`."""


def recording(host: Host, nic: Nic, ifindex: int) -> dict[str, object]:
    """Return all replies about a NIC."""
    return {
        "link": _link(nic, ifindex),
        "driver": {
            "name": identity(nic)[0],
            "version": "6.8.0",
            "firmware": f"{FIRMWARE} ({BOARD})" if nic.device else "4.40 0x8001c967 1.3534.0",
            "bus": nic.pci,
        },
        "settings": _settings(nic) | {"port": "fibre"},
        "link_modes": _link_modes(nic),
        "queueing": {"kind": "mq", "drops": 0, "overlimits": 0, "requeues": 0, "backlog_bytes": 0},
        **(_rail(host, nic) if nic.device else _management(nic)),
    }


def _link(nic: Nic, ifindex: int) -> dict[str, object]:
    """Return the reply of rtnetlink."""
    port = nic.port
    changes = port.counters["carrier_changes"]
    kernel = {}
    for direction, short in zip(DIRECTIONS, ("rx", "tx"), strict=True):
        kernel[f"{short}_packets"] = port.packets(direction, KERNEL)
        kernel[f"{short}_bytes"] = port.counted_bytes(direction, KERNEL)
        kernel |= {f"{short}_errors": 0, f"{short}_dropped": 0}
    return {
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
        "carrier_down_count": changes - changes // 2,
        "stats": kernel,
    }


def _settings(nic: Nic) -> dict[str, object]:
    port = nic.port
    return {"speed_bits_per_second": port.speed if port.up else None, "duplex": "full", "autoneg": True}


def _link_modes(nic: Nic) -> dict[str, object]:
    lanes, max_speed = (4, RAIL_SPEED) if nic.device else (1, MANAGEMENT_SPEED)
    return _settings(nic) | {"lanes": lanes if nic.port.up else None, "max_speed_bits_per_second": max_speed}


def _rail(host: Host, nic: Nic) -> dict[str, object]:
    """Return the replies about a rail, which has PFC on priority 3 with ECN and DSCP instead of 802.3x pause."""
    port, counters = nic.port, nic.port.counters
    reason = next((reason for fault, reason in DOWN_REASONS.items() if host.has_fault(fault, nic)), None)
    state: dict[str, object] = {"up": port.up, "down_count": counters["link_down"]}
    fec: dict[str, object] = {
        "corrected_blocks": counters["fec_corrected_blocks"],
        "uncorrectable_blocks": counters["fec_uncorrectable_blocks"],
    }
    if port.up:
        fec["active"] = "rs"
    elif reason is not None:
        state["reason"] = reason
    return {
        "statistics": mlx5(nic),
        "link_state": state,
        "pause": {"autoneg": False, "receive": False, "transmit": False},
        "fec": fec,
        "dcb": {
            "pfc": [3],
            "dscp_rules": True,
            "classes": [20, 0, 0, 80, 0, 0, 0, 0],
            "priority_classes": list(range(8)),
        },
        # Without a cable there is no module on the I2C bus.
        "module": {"errno": "EIO"} if host.has_fault("link-down", nic) else _module(host, nic),
    }


def _module(host: Host, nic: Nic) -> dict[str, str]:
    """Return the memory of a rail's module; its temperature varies over time and differs between rails."""
    temperature = 46 + nic.number + 3 * sin(host.uptime / 300 + nic.number)
    lanes = [
        modules.LaneReadings((1.1 - 0.05 * lane) * 1e-3, (1.3 - 0.04 * lane) * 1e-3, 0.08)
        for lane in range(modules.LANES)
    ]
    if host.has_fault("dirty-optic", nic):
        lanes[DIM_LANE] = lanes[DIM_LANE]._replace(received=0.6 * modules.RECEIVE_POWER_LEVELS[1])
    return modules.memory(f"SIM25030{nic.number:04d}", temperature, 3.29, lanes)


def mlx5(nic: Nic) -> dict[str, int]:
    """Return the statistics of a rail by the names of mlx5; with PFC counters of the lossless priority."""
    port, counters = nic.port, nic.port.counters
    values = {}
    for direction, short in zip(DIRECTIONS, ("rx", "tx"), strict=True):
        values[f"{short}_packets"] = port.packets(direction, KERNEL)
        values[f"{short}_bytes"] = port.counted_bytes(direction, KERNEL)
        values[f"{short}_vport_rdma_unicast_packets"] = port.packets(direction, ["rdma"])
        values[f"{short}_vport_rdma_unicast_bytes"] = port.counted_bytes(direction, ["rdma"])
        values[f"{short}_packets_phy"] = port.packets(direction)
        values[f"{short}_bytes_phy"] = port.wire_bytes(direction)
        values[f"{short}_discards_phy"] = 0
    return values | {
        "tx_errors_phy": 0,
        "rx_crc_errors_phy": counters["receive_errors"],
        "rx_symbol_err_phy": counters["fec_uncorrectable_blocks"],
        "rx_out_of_buffer": 0,
        "rx_pcs_symbol_err_phy": counters["symbol_errors"],
        "rx_corrected_bits_phy": counters["fec_corrected_bits"],
        "link_down_events_phy": counters["link_down"],
        "rx_ecn_mark": 0,
        "rx_buffer_passed_thres_phy": counters["pause_storm_warnings"],
        "tx_pause_storm_warning_events": counters["pause_storm_warnings"],
        "tx_pause_storm_error_events": 0,
        "outbound_pci_buffer_overflow": counters["pci_overflows"],
        "rx_prio3_pause": counters["pause_frames"],
        "rx_prio3_pause_duration": counters["paused_microseconds"],
        "rx_prio3_pause_transition": counters["pause_transitions"],
        "tx_prio3_pause": counters["sent_pause_frames"],
        "tx_prio3_pause_duration": counters["sent_paused_microseconds"],
    }


def _management(nic: Nic) -> dict[str, object]:
    """Return the replies about the management NIC: no RDMA, no PFC, a copper cable without module memory."""
    return {
        "statistics": _ice(nic),
        "link_state": {"up": nic.port.up},
        "pause": {"autoneg": True, "receive": False, "transmit": False},
        "fec": {"active": "rs"},
        "dcb": {"pfc": [], "dscp_rules": False},
    }


def _ice(nic: Nic) -> dict[str, int]:
    """Return the statistics of the management NIC by the names of ice."""
    port = nic.port
    values = {}
    for direction, short in zip(DIRECTIONS, ("rx", "tx"), strict=True):
        values[f"{short}_bytes.nic"] = port.wire_bytes(direction)
        values[f"{short}_unicast.nic"] = port.packets(direction, ["bulk"])
        values[f"{short}_multicast.nic"] = port.packets(direction, ["multicast"])
        values |= {f"{short}_broadcast.nic": 0, f"{short}_errors.nic": 0}
        values |= {f"link_xon_{short}.nic": 0, f"link_xoff_{short}.nic": 0}
    return values | {"rx_dropped.nic": 0, "tx_dropped_link_down.nic": 0, "rx_crc_errors.nic": 0}
