"""Statistics of each driver: mapping of the driver's names to metrics."""

from array import array

import pytest

from exporter.core.table import Kind
from exporter.sources.common.driver_statistics import (
    ABSENT,
    make_plan,
    sum_values,
    unmapped,
)
from exporter.sources.nic.drivers import DRIVERS, INFINIBAND, VIRTUAL
from exporter.sources.nic.metrics import PRIORITY, SCHEMA

MICROSECOND, PERCENT = 1e-6, 1e-2

# Name of the driver's statistic: ending of the metric, and what one of it is in base units where that is not 1.
PORT = {
    "mlx5_core": {
        "rx_bytes_phy": "receive_bytes_total",
        "tx_bytes_phy": "transmit_bytes_total",
        "rx_packets_phy": "receive_packets_total",
        "tx_packets_phy": "transmit_packets_total",
        "rx_discards_phy": "receive_discards_total",
        "tx_discards_phy": "transmit_discards_total",
        "tx_errors_phy": "transmit_errors_total",
        "rx_pause_ctrl_phy": "receive_pause_frames_total",
        "tx_pause_ctrl_phy": "transmit_pause_frames_total",
        "rx_global_pause_duration": ("receive_paused_seconds_total", MICROSECOND),
        "tx_global_pause_duration": ("transmit_paused_seconds_total", MICROSECOND),
        "rx_global_pause_transition": "receive_pause_transitions_total",
        "rx_crc_errors_phy": "fcs_errors_total",
        "rx_symbol_err_phy": "symbol_errors_total",
        "rx_pcs_symbol_err_phy": "pcs_symbol_errors_total",
        "rx_corrected_bits_phy": "fec_corrected_errors_total",
        "total_success_recovery_phy": "link_error_recovery_total",
        "rx_out_of_buffer": "out_of_buffer_total",
        "dev_internal_queue_oob": "device_out_of_buffer_total",
        "dev_out_of_buffer": "device_out_of_buffer_total",
        "rx_steer_missed_packets": "steering_misses_total",
        "link_down_events_phy": "link_down_total",
        "rx_ecn_mark": "kernel_ecn_marked_packets_total",
        "rx_buffer_passed_thres_phy": "receive_buffer_threshold_total",
        "tx_pause_storm_warning_events": "transmit_pause_storm_warnings_total",
        "tx_pause_storm_error_events": "transmit_pause_storm_errors_total",
        "rx_undersize_pkts_phy": "receive_undersize_packets_total",
        "rx_oversize_pkts_phy": "receive_oversize_packets_total",
        "rx_fragments_phy": "receive_fragments_total",
        "rx_jabbers_phy": "receive_jabbers_total",
        "outbound_pci_buffer_overflow": "pci_buffer_overflows_total",
        "outbound_pci_stalled_rd": ("pci_read_stalled_ratio", PERCENT),
        "outbound_pci_stalled_wr": ("pci_write_stalled_ratio", PERCENT),
        "outbound_pci_stalled_rd_events": "pci_read_stalled_seconds_total",
        "outbound_pci_stalled_wr_events": "pci_write_stalled_seconds_total",
        "rx_pci_signal_integrity": "pci_receive_recoveries_total",
        "tx_pci_signal_integrity": "pci_transmit_recoveries_total",
        "module_unplug": "module_unplugs_total",
        "module_bus_stuck": "module_bus_stuck_total",
        "module_high_temp": "module_overheats_total",
        "module_bad_shorted": "module_faults_total",
    },
    "mlx4_en": {
        "rx_pause": "receive_pause_frames_total",
        "tx_pause": "transmit_pause_frames_total",
        "rx_pause_transition": "receive_pause_transitions_total",
        "tx_pause_transition": "transmit_pause_transitions_total",
        "rx_crc_errors": "fcs_errors_total",
        "rx_jabbers": "receive_jabbers_total",
        "tx_timeout": "transmit_timeouts_total",
    },
    "bnxt_en": {
        "rx_bytes": "receive_bytes_total",
        "tx_bytes": "transmit_bytes_total",
        "rx_good_frames": "receive_packets_total",
        "tx_good_frames": "transmit_packets_total",
        "rx_stat_discard": "receive_discards_total",
        "tx_stat_discard": "transmit_discards_total",
        "rx_stat_err": "receive_errors_total",
        "tx_err": "transmit_errors_total",
        "rx_pause_frames": "receive_pause_frames_total",
        "tx_pause_frames": "transmit_pause_frames_total",
        "rx_fcs_err_frames": "fcs_errors_total",
        "rx_pcs_symbol_err": "symbol_errors_total",
        "rx_align_err_frames": "alignment_errors_total",
        "link_down_events": "link_down_total",
        "rx_fec_corrected_blocks": "fec_corrected_blocks_total",
        "rx_fec_uncorrectable_blocks": "fec_uncorrectable_blocks_total",
        "rx_corrected_bits": "fec_corrected_errors_total",
        "rx_buffer_passed_threshold": "receive_buffer_threshold_total",
        "rx_undrsz_frames": "receive_undersize_packets_total",
        "rx_ovrsz_frames": "receive_oversize_packets_total",
        "rx_jbr_frames": "receive_jabbers_total",
        "rx_total_ring_discards": "out_of_buffer_total",
        "rx_total_discard_pkts": "out_of_buffer_total",
    },
    "ixgbe": {
        "rx_bytes_nic": "receive_bytes_total",
        "tx_bytes_nic": "transmit_bytes_total",
        "rx_pkts_nic": "receive_packets_total",
        "tx_pkts_nic": "transmit_packets_total",
        "rx_errors": "receive_errors_total",
        "rx_missed_errors": "receive_discards_total",
        "rx_no_dma_resources": "out_of_buffer_total",
        "rx_flow_control_xoff": "receive_pause_frames_total",
        "tx_flow_control_xoff": "transmit_pause_frames_total",
        "rx_crc_errors": "fcs_errors_total",
        "rx_length_errors": "receive_length_errors_total",
    },
    "iavf": {
        "rx_discards": "receive_discards_total",
        "tx_discards": "transmit_discards_total",
        "tx_errors": "transmit_errors_total",
    },
    "ionic": {
        "octets_rx_ok": "receive_bytes_total",
        "octets_tx_ok": "transmit_bytes_total",
        "frames_rx_ok": "receive_packets_total",
        "frames_tx_ok": "transmit_packets_total",
        "frames_rx_dropped": "receive_discards_total",
        "hw_tx_dropped": "transmit_discards_total",
        "frames_rx_bad_all": "receive_errors_total",
        "frames_tx_bad": "transmit_errors_total",
        "frames_rx_pause": "receive_pause_frames_total",
        "frames_tx_pause": "transmit_pause_frames_total",
        "rx_pause_1us_count": ("receive_paused_seconds_total", MICROSECOND),
        "frames_rx_bad_fcs": "fcs_errors_total",
        "frames_rx_undersized": "receive_undersize_packets_total",
        "frames_rx_oversized": "receive_oversize_packets_total",
        "frames_rx_fragments": "receive_fragments_total",
        "frames_rx_jabber": "receive_jabbers_total",
        "frames_rx_bad_length": "receive_length_errors_total",
        "hw_rx_over_errors": "out_of_buffer_total",
    },
    "hns3": {
        "mac_rx_total_oct_num": "receive_bytes_total",
        "mac_tx_total_oct_num": "transmit_bytes_total",
        "mac_rx_total_pkt_num": "receive_packets_total",
        "mac_tx_total_pkt_num": "transmit_packets_total",
        "mac_rx_mac_pause_num": "receive_pause_frames_total",
        "mac_tx_mac_pause_num": "transmit_pause_frames_total",
        "mac_rx_fcs_err_pkt_num": "fcs_errors_total",
        "mac_rx_undersize_pkt_num": "receive_undersize_packets_total",
        "mac_rx_oversize_pkt_num": "receive_oversize_packets_total",
        "mac_rx_fragment_pkt_num": "receive_fragments_total",
        "mac_rx_jabber_pkt_num": "receive_jabbers_total",
    },
    "cxgb4": {
        "rx_octets_ok": "receive_bytes_total",
        "tx_octets_ok": "transmit_bytes_total",
        "rx_frames_ok": "receive_packets_total",
        "tx_frames_ok": "transmit_packets_total",
        "tx_frames_dropped": "transmit_discards_total",
        "tx_error_frames": "transmit_errors_total",
        "rx_pause_frames": "receive_pause_frames_total",
        "tx_pause_frames": "transmit_pause_frames_total",
        "rx_fcs_errors": "fcs_errors_total",
        "rx_symbol_errors": "symbol_errors_total",
        "rx_frames_too_long": "receive_oversize_packets_total",
        "rx_jabber_errors": "receive_jabbers_total",
        "rx_length_errors": "receive_length_errors_total",
    },
    "ena": {
        "tx_timeout": "transmit_timeouts_total",
        "bw_in_allowance_exceeded": "receive_allowance_exceeded_total",
        "bw_out_allowance_exceeded": "transmit_allowance_exceeded_total",
        "pps_allowance_exceeded": "packet_rate_allowance_exceeded_total",
        "conntrack_allowance_exceeded": "connection_allowance_exceeded_total",
        "linklocal_allowance_exceeded": "link_local_allowance_exceeded_total",
        "conntrack_allowance_available": "connection_allowance_available",
        "ena_srd_rx_pkts": "receive_srd_packets_total",
        "ena_srd_tx_pkts": "transmit_srd_packets_total",
        "ena_srd_eligible_tx_pkts": "transmit_srd_eligible_packets_total",
    },
    "gve": {
        "rx_dropped": "receive_discards_total",
        "tx_dropped": "transmit_discards_total",
        "tx_timeouts": "transmit_timeouts_total",
    },
    "mana": {"hc_rx_discards_no_wqe": "out_of_buffer_total"},
    "virtio_net": {"rx_drops": "receive_discards_total", "tx_tx_timeouts": "transmit_timeouts_total"},
    **{
        driver: {
            f"{before}{name}{after}": ending
            for name, ending in {
                "rx_bytes": "receive_bytes_total",
                "tx_bytes": "transmit_bytes_total",
                "rx_dropped": "receive_discards_total",
                "tx_dropped_link_down": "transmit_discards_total",
                "tx_errors": "transmit_errors_total",
                "link_xoff_rx": "receive_pause_frames_total",
                "link_xoff_tx": "transmit_pause_frames_total",
                "rx_crc_errors": "fcs_errors_total",
                "tx_timeout": "transmit_timeouts_total",
                "illegal_bytes": "illegal_bytes_total",
                "mac_local_faults": "local_faults_total",
                "mac_remote_faults": "remote_faults_total",
                "rx_undersize": "receive_undersize_packets_total",
                "rx_oversize": "receive_oversize_packets_total",
                "rx_fragments": "receive_fragments_total",
                "rx_jabber": "receive_jabbers_total",
                "rx_length_errors": "receive_length_errors_total",
                **extra,
            }.items()
        }
        for driver, before, after, extra in (
            ("ice", "", ".nic", {}),
            ("i40e", "port.", "", {"rx_discards": "receive_discards_total"}),
        )
    },
}

# What is the sum of several.
SUMS = {
    "mlx5_core": {
        "rdma_receive_bytes_total": ("rx_vport_rdma_unicast_bytes", "rx_vport_rdma_multicast_bytes"),
        "rdma_transmit_bytes_total": ("tx_vport_rdma_unicast_bytes", "tx_vport_rdma_multicast_bytes"),
        "rdma_receive_packets_total": ("rx_vport_rdma_unicast_packets", "rx_vport_rdma_multicast_packets"),
        "rdma_transmit_packets_total": ("tx_vport_rdma_unicast_packets", "tx_vport_rdma_multicast_packets"),
        "receive_length_errors_total": ("rx_in_range_len_errors_phy", "rx_out_of_range_len_phy"),
    },
    "mlx4_en": {"receive_length_errors_total": ("rx_in_range_length_error", "rx_out_range_length_error")},
    "ice": {
        "receive_packets_total": ("rx_unicast.nic", "rx_multicast.nic", "rx_broadcast.nic"),
        "transmit_packets_total": ("tx_unicast.nic", "tx_multicast.nic", "tx_broadcast.nic"),
    },
    "i40e": {
        "receive_packets_total": ("port.rx_unicast", "port.rx_multicast", "port.rx_broadcast"),
        "transmit_packets_total": ("port.tx_unicast", "port.tx_multicast", "port.tx_broadcast"),
    },
    "cxgb4": {"receive_discards_total": tuple(f"rx_bg{group}_frames_dropped" for group in range(4))},
}

# The same by priority.
BY_PRIORITY = {
    "mlx5_core": {
        "rx_prio{p}_pause": "receive_pfc_frames_total",
        "tx_prio{p}_pause": "transmit_pfc_frames_total",
        "rx_prio{p}_pause_duration": ("receive_pfc_paused_seconds_total", MICROSECOND),
        "tx_prio{p}_pause_duration": ("transmit_pfc_paused_seconds_total", MICROSECOND),
        "rx_prio{p}_pause_transition": "receive_pfc_transitions_total",
        "rx_prio{p}_bytes": "receive_priority_bytes_total",
        "tx_prio{p}_bytes": "transmit_priority_bytes_total",
        "rx_prio{p}_packets": "receive_priority_packets_total",
        "tx_prio{p}_packets": "transmit_priority_packets_total",
        "rx_prio{p}_discards": "receive_priority_discards_total",
        "rx_prio{p}_buf_discard": "receive_priority_buffer_discards_total",
        "rx_prio{p}_cong_discard": "receive_priority_congestion_discards_total",
        "rx_prio{p}_marked": "receive_priority_ecn_marked_packets_total",
    },
    "mlx4_en": {
        "rx_pause_prio_{p}": "receive_pfc_frames_total",
        "tx_pause_prio_{p}": "transmit_pfc_frames_total",
        "rx_pause_transition_prio_{p}": "receive_pfc_transitions_total",
        "tx_pause_transition_prio_{p}": "transmit_pfc_transitions_total",
        "rx_prio_{p}_bytes": "receive_priority_bytes_total",
        "tx_prio_{p}_bytes": "transmit_priority_bytes_total",
        "rx_prio_{p}_packets": "receive_priority_packets_total",
        "tx_prio_{p}_packets": "transmit_priority_packets_total",
    },
    "bnxt_en": {
        "rx_pfc_ena_frames_pri{p}": "receive_pfc_frames_total",
        "tx_pfc_ena_frames_pri{p}": "transmit_pfc_frames_total",
        "pfc_pri{p}_rx_duration_us": ("receive_pfc_paused_seconds_total", MICROSECOND),
        "pfc_pri{p}_tx_duration_us": ("transmit_pfc_paused_seconds_total", MICROSECOND),
        "pfc_pri{p}_rx_transitions": "receive_pfc_transitions_total",
        "pfc_pri{p}_tx_transitions": "transmit_pfc_transitions_total",
        "rx_bytes_pri{p}": "receive_priority_bytes_total",
        "tx_bytes_pri{p}": "transmit_priority_bytes_total",
        "rx_packets_pri{p}": "receive_priority_packets_total",
        "tx_packets_pri{p}": "transmit_priority_packets_total",
    },
    "ice": {
        "rx_priority_{p}_xoff.nic": "receive_pfc_frames_total",
        "tx_priority_{p}_xoff.nic": "transmit_pfc_frames_total",
    },
    "i40e": {
        "port.rx_priority_{p}_xoff": "receive_pfc_frames_total",
        "port.tx_priority_{p}_xoff": "transmit_pfc_frames_total",
    },
    "ixgbe": {
        "rx_pb_{p}_pxoff": "receive_pfc_frames_total",
        "tx_pb_{p}_pxoff": "transmit_pfc_frames_total",
    },
    "ionic": {
        "rx_pripause_{p}_1us_count": ("receive_pfc_paused_seconds_total", MICROSECOND),
        "tx_pripause_{p}_1us_count": ("transmit_pfc_paused_seconds_total", MICROSECOND),
        "frames_rx_pri_{p}": "receive_priority_packets_total",
        "frames_tx_pri_{p}": "transmit_priority_packets_total",
    },
    "hns3": {
        "mac_rx_pfc_pri{p}_pkt_num": "receive_pfc_frames_total",
        "mac_tx_pfc_pri{p}_pkt_num": "transmit_pfc_frames_total",
    },
    "cxgb4": {
        "rx_ppp{p}_frames": "receive_pfc_frames_total",
        "tx_ppp{p}_frames": "transmit_pfc_frames_total",
    },
}

QUEUES = {"receive_discards_total", "transmit_timeouts_total", "out_of_buffer_total"}
"""Metrics that virtio and gve count per queue only."""

MLX5, ICE, VIRTIO = DRIVERS["mlx5_core"], DRIVERS["ice"], DRIVERS["virtio_net"]


def both_parts(declared):
    """Return ending and unit; the unit is 1 where only the ending is declared."""
    return (declared, 1) if isinstance(declared, str) else declared


def read(driver, statistics):
    """Return the values of the port, and those by priority, of statistics given by name."""
    names = tuple(name for name, _ in statistics)
    values = array("Q", [value for _, value in statistics])
    places = make_plan(driver, names)
    return sum_values(places.port, values), {
        number: sum_values(where, values) for number, where in places.priority.items()
    }


def test_all_drivers_are_covered():
    assert PORT.keys() == DRIVERS.keys()
    assert BY_PRIORITY.keys() == {name for name, names in DRIVERS.items() if names.priority}


@pytest.mark.parametrize("name", PORT)
def test_each_statistic_maps_to_one_metric_in_base_units(name):
    driver = DRIVERS[name]
    units = {one.ending: 1 / one.divisor for one in driver.port}
    for value, (statistic, declared) in enumerate(PORT[name].items(), start=2**60):
        ending, unit = both_parts(declared)
        others = [("ch0_poll", 1), (f"{statistic}_x", 3), (f"x_{statistic}", 4)]
        assert read(driver, [*others, (statistic, value)]) == ({ending: value}, {})
        assert units[ending] == unit
    named = {both_parts(declared)[0] for declared in PORT[name].values()} | SUMS.get(name, {}).keys()
    assert units.keys() - named <= QUEUES, "every metric is named here"


@pytest.mark.parametrize("name", SUMS)
def test_sum_needs_all_its_statistics(name):
    assert SUMS[name]
    for ending, names in SUMS[name].items():
        assert len(names) > 1
        parts = [(statistic, 10**place) for place, statistic in enumerate(names)]
        assert read(DRIVERS[name], parts)[0] == {ending: sum(value for _, value in parts)}
        for place in range(len(parts)):
            without = [*parts[:place], *parts[place + 1 :]]
            assert ending not in read(DRIVERS[name], without)[0]
            assert ending not in read(DRIVERS[name], [*without, (names[place], ABSENT)])[0]


@pytest.mark.parametrize("name", BY_PRIORITY)
@pytest.mark.parametrize("number", range(8))
def test_statistics_by_priority(name, number):
    names = {statistic: both_parts(declared) for statistic, declared in BY_PRIORITY[name].items()}
    units = {one.ending: 1 / one.divisor for one in DRIVERS[name].priority if "{p}" in one.names[0]}
    statistics = [(statistic.format(p=number), value) for value, statistic in enumerate(names, start=10)]
    port, priorities = read(DRIVERS[name], statistics)
    assert port == {}
    assert priorities == {str(number): {ending: 10 + at for at, (ending, _) in enumerate(names.values())}}
    assert units == dict(names.values())


def test_similar_names_are_not_priorities():
    names = ["rx_prio8_pause", "rx_prio3_pause_x", "xrx_prio3_pause", "rx_prio_pause", "rx_prio33_pause", "rx_prio3"]
    assert read(MLX5, [(name, 1) for name in names]) == ({}, {})
    assert read(ICE, [("rx_priority_3_xon.nic", 1), ("rx_priority_3_xoffxnic", 1)]) == ({}, {})


def test_any_priority_may_be_lossless():
    """A reader of priority 3 only would miss a storm on 4."""
    assert read(MLX5, [("rx_prio4_pause", 9_000_000), ("rx_prio4_pause_duration", 5)])[1].keys() == {"4"}


def test_ionic_pfc_frames_are_for_all_priorities_together():
    port, priorities = read(DRIVERS["ionic"], [("frames_rx_pripause", 5), ("rx_pripause_3_1us_count", 2_000_000)])
    assert port == {}
    assert priorities == {
        "": {"receive_pfc_frames_total": 5},
        "3": {"receive_pfc_paused_seconds_total": 2_000_000},
    }


def test_i40e_names_with_repeated_direction():
    names = ("port.rx_priority_3_xoff_rx", "port.tx_priority_3_xoff_tx")
    twice = [(name, value) for value, name in enumerate(names, start=1)]
    expected = {"3": {"receive_pfc_frames_total": 1, "transmit_pfc_frames_total": 2}}
    assert read(DRIVERS["i40e"], twice)[1] == expected
    assert read(DRIVERS["i40e"], [*twice, ("port.rx_priority_3_xoff", 7)])[1]["3"]["receive_pfc_frames_total"] == 7
    assert read(DRIVERS["i40e"], [("port.rx_priority_3_xon_2_xoff", 9), ("port.rx_priority_3_xon_rx", 9)]) == ({}, {})


def test_counter_widths_of_the_hardware():
    """q-counters, link downs and recoveries of mlx5 have 32 bits, all others 64 as far as is known."""
    narrow = {(name, one.ending): one.width for name in DRIVERS for one in all_of(DRIVERS[name]) if one.width != 64}
    endings = (
        "out_of_buffer_total",
        "device_out_of_buffer_total",
        "link_down_total",
        "link_error_recovery_total",
        "pci_receive_recoveries_total",
        "pci_transmit_recoveries_total",
    )
    assert narrow == {("mlx5_core", ending): 32 for ending in endings}


def all_of(driver):
    return (*driver.port, *driver.priority)


@pytest.mark.parametrize("name", DRIVERS)
def test_alternative_names_of_a_metric_have_the_same_width_and_unit(name):
    """A column is shared by all versions of a driver."""
    for names in (DRIVERS[name], VIRTUAL.get(name, DRIVERS[name])):
        for group in (names.port, names.priority):
            alike = {}
            for one in group:
                assert alike.setdefault(one.ending, one[2:]) == one[2:]
                assert "#" in "".join(one.names) or len(set(one.names)) == len(one.names)
    functions = {one.ending for one in all_of(VIRTUAL.get(name, DRIVERS[name]))}
    assert functions <= {one.ending for one in all_of(DRIVERS[name])}, "columns are of the driver's whole table"


def test_endings_are_declared_and_ratios_are_gauges():
    assert DRIVERS
    for names in DRIVERS.values():
        assert names.port
        for group, schema in ((names.port, SCHEMA), (names.priority, PRIORITY)):
            for one in group:
                metric = schema.metrics[one.ending]
                assert (metric.kind is Kind.COUNTER) == one.ending.endswith("_total")
                assert (one.divisor == 100) == (metric.unit == "ratio")
                assert (one.divisor == 1_000_000) == one.ending.endswith("paused_seconds_total")


def test_similar_names_of_counters_and_gauges():
    """A list of statistics does not distinguish counters from gauges."""
    assert SCHEMA.metrics["connection_allowance_available"].kind is Kind.GAUGE
    assert SCHEMA.metrics["connection_allowance_exceeded_total"].kind is Kind.COUNTER
    assert SCHEMA.metrics["pci_write_stalled_ratio"].kind is Kind.GAUGE
    assert SCHEMA.metrics["pci_write_stalled_seconds_total"].kind is Kind.COUNTER


# Statistics that drivers have twice.


def test_function_statistics_are_not_the_ports():
    function = ["rx_bytes", "tx_bytes", "rx_unicast", "rx_multicast", "rx_broadcast", "rx_dropped", "tx_errors"]
    function += ["rx_crc_errors", "rx_length_errors", "veb.rx_bytes", "veb.tc_0_rx_bytes", "rx_queue_0_bytes"]
    for name in ("ice", "i40e"):
        assert read(DRIVERS[name], [(one, 9) for one in function]) == ({}, {})


def test_names_that_differ_in_punctuation_stay_different():
    """With dots converted to underscores, 12028 dropped packets were exported as 0."""
    assert read(DRIVERS["i40e"], [("port.rx_dropped", 12028), ("port_rx_dropped", 0), ("rx_dropped", 0)])[0] == {
        "receive_discards_total": 12028
    }


def test_bnxt_statistics_are_read_by_priority_not_by_class():
    statistics = [
        ("rx_bytes_cos3", 7),
        ("rx_bytes_pri3", 7),
        ("[3]: rx_ucast_bytes", 7),
        ("rx_discard_packets_cos3", 7),
    ]
    assert read(DRIVERS["bnxt_en"], statistics) == ({}, {"3": {"receive_priority_bytes_total": 7}})


def test_cxgb4_loopback_statistics_are_not_the_ports():
    block = ["-------Loopback-----------", "octets_ok", "frames_ok", "error_frames", "frames_dropped"]
    block += [f"bg{group}_frames_dropped" for group in range(4)]
    statistics = [("rx_octets_ok", 1), ("tx_octets_ok", 2), *((name, 10**9) for name in block)]
    assert read(DRIVERS["cxgb4"], statistics)[0] == {"receive_bytes_total": 1, "transmit_bytes_total": 2}


def test_statistics_of_unknown_unit_are_not_read():
    names = ["mac_rx_pause_xoff_time", "mac_tx_pfc_pri3_xoff_time", "rx_pause_duration", "rx_pause_duration_prio_3"]
    for name in ("hns3", "mlx4_en"):
        assert read(DRIVERS[name], [(one, 9) for one in names]) == ({}, {})


def test_virtual_functions_have_no_port_counters():
    """Port counters are 0 on a virtual function of mlx5, and those of all functions together on one of ionic."""
    for name, names in VIRTUAL.items():
        assert not names.wire
        assert names.priority == ()
        assert {one.ending for one in names.port} <= {
            "out_of_buffer_total",
            "device_out_of_buffer_total",
            "steering_misses_total",
            "kernel_ecn_marked_packets_total",
            "receive_discards_total",
            "transmit_discards_total",
            "transmit_errors_total",
            *SUMS["mlx5_core"],
        } - {"receive_length_errors_total"}, name
    everything = [(name, 0) for name in PORT["mlx5_core"]] + [("rx_prio3_pause", 0)]
    assert read(VIRTUAL["mlx5_core"], everything)[0].keys() == {
        "out_of_buffer_total",
        "device_out_of_buffer_total",
        "steering_misses_total",
        "kernel_ecn_marked_packets_total",
    }
    of_function = [("hw_rx_over_errors", 1), ("hw_rx_dropped", 2), ("hw_tx_dropped", 3)]
    of_port = [("octets_rx_ok", 9), ("frames_rx_pause", 9), ("frames_rx_dropped", 9)]
    assert read(VIRTUAL["ionic"], [*of_port, *of_function]) == (
        {"out_of_buffer_total": 1, "receive_discards_total": 2, "transmit_discards_total": 3},
        {},
    )


def test_ionic_dma_errors_are_not_out_of_buffer():
    """Of ionic, hw_rx_over_errors counts empty queues, hw_rx_missed_errors counts DMA errors."""
    for names in (DRIVERS["ionic"], VIRTUAL["ionic"]):
        assert read(names, [("hw_rx_missed_errors", 9), ("rx_over_errors", 9)]) == ({}, {})


def test_infiniband_port_has_link_counters_but_no_traffic():
    (names,) = INFINIBAND.values()
    assert (names.wire, names.priority) == (False, ())
    every = [name for one in all_of(MLX5) for name in one.names]
    assert read(names, [(name.replace("{p}", "3"), 1) for name in every])[0].keys() == {
        "pcs_symbol_errors_total",
        "fec_corrected_errors_total",
        "link_down_total",
        "link_error_recovery_total",
        "pci_buffer_overflows_total",
        "pci_read_stalled_ratio",
        "pci_write_stalled_ratio",
        "pci_read_stalled_seconds_total",
        "pci_write_stalled_seconds_total",
        "pci_receive_recoveries_total",
        "pci_transmit_recoveries_total",
        "module_unplugs_total",
        "module_bus_stuck_total",
        "module_overheats_total",
        "module_faults_total",
    }
    assert set(names.port) <= set(MLX5.port), "the same strings mean the same"


def test_only_some_drivers_count_on_the_wire():
    wire = {name for name, names in DRIVERS.items() if names.wire}
    assert wire == {"bnxt_en", "cxgb4", "hns3", "i40e", "ice", "ionic", "ixgbe", "mlx5_core"}
    for name, names in DRIVERS.items():
        assert ("receive_bytes_total" in {one.ending for one in names.port}) == (name in wire)


# Queues.


@pytest.mark.parametrize("spelling", ["rx{}_drops", "rx_queue_{}_drops"])
def test_virtio_queues_are_added_up_in_both_spellings(spelling):
    timeouts = spelling.replace("rx", "tx").replace("drops", "tx_timeouts")
    statistics = [(spelling.format(number), 2**number) for number in range(12)]
    statistics += [(timeouts.format(number), 3) for number in range(2)]
    others = [("rx0_packets", 10**6), ("rx0_drops_x", 10**6), ("rxa_drops", 10**6), ("rx0_hw_drops", 10**6)]
    port, priorities = read(VIRTIO, statistics + others)
    assert port == {"receive_discards_total": 4095, "transmit_timeouts_total": 6}
    assert priorities == {}


def test_total_is_preferred_to_the_sum_of_queues():
    assert read(VIRTIO, [("rx0_drops", 1), ("rx1_drops", 2), ("rx_drops", 4)])[0] == {"receive_discards_total": 4}


def test_gve_queues_in_brackets_are_added_up():
    statistics = [("rx_no_buffers_posted[0]", 3), ("rx_no_buffers_posted[12]", 40), ("rx_no_buffers_posted0", 500)]
    assert read(DRIVERS["gve"], statistics)[0] == {"out_of_buffer_total": 43}


# Hostile and malformed input.


def test_all_ones_is_absent():
    port, priorities = read(
        MLX5,
        [
            ("rx_bytes_phy", 2**64 - 1),
            ("tx_bytes_phy", 2**64 - 2),
            ("rx_prio3_pause", 2**64 - 1),
            ("tx_prio3_pause", 0),
        ],
    )
    assert port == {"transmit_bytes_total": 2**64 - 2}
    assert priorities == {"3": {"transmit_pfc_frames_total": 0}}


def test_first_of_a_repeated_name_is_used():
    statistics = [("rx_bytes_phy", 1), ("rx_bytes_phy", 2), ("rx_prio3_pause", 3), ("rx_prio3_pause", 4)]
    assert read(MLX5, statistics) == ({"receive_bytes_total": 1}, {"3": {"receive_pfc_frames_total": 3}})
    assert read(VIRTIO, [("rx0_drops", 1), ("rx0_drops", 2)])[0] == {"receive_discards_total": 1}


def test_empty_and_hostile_names():
    assert DRIVERS
    names = ["", "rx_prio\n3_pause", "rx\u0663_drops", "[", "*", "{p}", "#", "rx_prio{p}_pause", "rx#_drops"]
    names += ["rx_no_buffers_posted[#]", "rx_no_buffers_posted[]", "(" * 40]
    for driver in DRIVERS.values():
        assert read(driver, []) == ({}, {})
        assert read(driver, [(name, 7) for name in names]) == ({}, {})


def test_raw_statistics_are_those_without_a_metric():
    names = ("rx_bytes_phy", "rx_prio3_pause", "a", "b", "a", "", "rx_oversize_pkts_phy")
    made = make_plan(MLX5, names)
    assert unmapped(made, names, ["*"]) == {"a": 2, "b": 3}
    assert unmapped(made, names, ["b", "rx*"]) == {"b": 3}
    assert unmapped(made, names, []) == {}
