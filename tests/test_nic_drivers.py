"""What the statistics of each driver mean: names as the drivers spell them, and the plan that picks values by them."""

import re
from array import array

import pytest

from exporter.sources.nic_drivers import DRIVERS, ICE, MLX5, VIRTIO, VIRTUAL
from exporter.sources.statistics import ABSENT, picked, plan
from exporter.vocabulary import ENDINGS

# Name of the driver's statistic: ending of the metric, and what one of it is in base units.
MLX5_NAMES = {
    "rx_bytes_phy": ("receive_bytes_total", 1),
    "tx_bytes_phy": ("transmit_bytes_total", 1),
    "rx_packets_phy": ("receive_packets_total", 1),
    "tx_packets_phy": ("transmit_packets_total", 1),
    "rx_discards_phy": ("receive_discards_total", 1),
    "tx_discards_phy": ("transmit_discards_total", 1),
    "tx_errors_phy": ("transmit_errors_total", 1),
    "rx_pause_ctrl_phy": ("receive_pause_frames_total", 1),
    "tx_pause_ctrl_phy": ("transmit_pause_frames_total", 1),
    "rx_global_pause_duration": ("receive_paused_seconds_total", 1e-6),
    "tx_global_pause_duration": ("transmit_paused_seconds_total", 1e-6),
    "rx_crc_errors_phy": ("fcs_errors_total", 1),
    "rx_symbol_err_phy": ("symbol_errors_total", 1),
    "rx_pcs_symbol_err_phy": ("pcs_symbol_errors_total", 1),
    "rx_corrected_bits_phy": ("fec_corrected_errors_total", 1),
    "rx_out_of_buffer": ("out_of_buffer_total", 1),
    "link_down_events_phy": ("link_down_total", 1),
    "rx_ecn_mark": ("kernel_ecn_marked_packets_total", 1),
    "rx_buffer_passed_thres_phy": ("receive_buffer_threshold_total", 1),
    "tx_pause_storm_warning_events": ("transmit_pause_storm_warnings_total", 1),
    "tx_pause_storm_error_events": ("transmit_pause_storm_errors_total", 1),
    "outbound_pci_buffer_overflow": ("pci_buffer_overflows_total", 1),
}
ICE_NAMES = {
    "rx_bytes.nic": ("receive_bytes_total", 1),
    "tx_bytes.nic": ("transmit_bytes_total", 1),
    "rx_dropped.nic": ("receive_discards_total", 1),
    "tx_dropped_link_down.nic": ("transmit_discards_total", 1),
    "tx_errors.nic": ("transmit_errors_total", 1),
    "link_xoff_rx.nic": ("receive_pause_frames_total", 1),
    "link_xoff_tx.nic": ("transmit_pause_frames_total", 1),
    "rx_crc_errors.nic": ("fcs_errors_total", 1),
}
PRIORITY_NAMES = {
    "mlx5_core": {
        "rx_prio{p}_pause": ("receive_pfc_frames_total", 1),
        "tx_prio{p}_pause": ("transmit_pfc_frames_total", 1),
        "rx_prio{p}_pause_duration": ("receive_pfc_paused_seconds_total", 1e-6),
        "tx_prio{p}_pause_duration": ("transmit_pfc_paused_seconds_total", 1e-6),
        "rx_prio{p}_pause_transition": ("receive_pfc_transitions_total", 1),
    },
    "ice": {
        "rx_priority_{p}_xoff.nic": ("receive_pfc_frames_total", 1),
        "tx_priority_{p}_xoff.nic": ("transmit_pfc_frames_total", 1),
    },
}


def read(driver, statistics):
    """Pick from statistics given by name: what the port has, and what each priority has."""
    names = tuple(name for name, _ in statistics)
    values = array("Q", [value for _, value in statistics])
    places = plan(driver, names)
    return picked(places.port, values), {number: picked(where, values) for number, where in places.priority.items()}


@pytest.mark.parametrize(("driver", "names"), [(MLX5, MLX5_NAMES), (ICE, ICE_NAMES)], ids=["mlx5", "ice"])
def test_each_name_is_one_metric_in_base_units(driver, names):
    units = {one.ending: 1 / one.divisor for one in driver.port}
    for value, (name, (ending, unit)) in enumerate(names.items(), start=2**60):
        assert read(driver, [("rx_bytes", 1), (name, value), ("rx0_bytes", 2)]) == ({ending: value}, {})
        assert units[ending] == unit
    sums = {one.ending for one in driver.port if len(one.names) > 1}
    assert set(units) - sums == {ending for ending, _ in names.values()}, "every metric is named here"


@pytest.mark.parametrize("driver", PRIORITY_NAMES)
@pytest.mark.parametrize("number", range(8))
def test_each_priority_by_its_number(driver, number):
    names = PRIORITY_NAMES[driver]
    units = {one.ending: 1 / one.divisor for one in DRIVERS[driver].priority}
    statistics = [(name.format(p=number), value) for value, name in enumerate(names, start=10)]
    port, priorities = read(DRIVERS[driver], statistics)
    assert port == {}
    assert priorities == {str(number): {ending: 10 + at for at, (ending, _) in enumerate(names.values())}}
    assert units == dict(names.values())


def test_what_only_looks_like_a_priority_is_none():
    names = ["rx_prio8_pause", "rx_prio3_pause_x", "xrx_prio3_pause", "rx_prio_pause", "rx_prio33_pause", "rx_prio3"]
    assert read(MLX5, [(name, 1) for name in names]) == ({}, {})
    assert read(ICE, [("rx_priority_3_xon.nic", 1), ("rx_priority_3_xoffxnic", 1)]) == ({}, {})


def test_widths_are_those_of_the_hardware():
    """The facts: q-counters and link downs of mlx5 have 32 bits, its port counters 64."""
    narrow = {one.ending for names in DRIVERS.values() for one in (*names.port, *names.priority) if one.width != 64}
    assert narrow == {"out_of_buffer_total", "link_down_total"}
    assert {one.width for one in MLX5.port if one.ending in narrow} == {32}


def test_packets_of_ice_are_the_sum_of_the_casts_and_nothing_where_one_is_missing():
    casts = [("rx_unicast.nic", 5), ("rx_multicast.nic", 70), ("rx_broadcast.nic", 900)]
    assert read(ICE, casts)[0] == {"receive_packets_total": 975}
    for missing in casts:
        assert read(ICE, [one for one in casts if one != missing])[0] == {}
    assert read(ICE, [*casts[:2], ("rx_broadcast.nic", ABSENT)])[0] == {}


def test_the_view_of_the_function_is_not_that_of_the_port():
    assert read(ICE, [("rx_bytes", 1), ("tx_bytes", 2), ("rx_unicast", 3), ("rx_dropped", 4)])[0] == {}


@pytest.mark.parametrize("spelling", ["rx{}_drops", "rx_queue_{}_drops"])
def test_virtio_adds_up_its_queues_in_both_spellings(spelling):
    timeouts = spelling.replace("rx", "tx").replace("drops", "tx_timeouts")
    statistics = [(spelling.format(number), 2**number) for number in range(12)]
    statistics += [(timeouts.format(number), 3) for number in range(2)]
    others = [("rx_drops", 10**6), ("rx0_packets", 10**6), ("rx0_drops_x", 10**6), ("rxa_drops", 10**6)]
    port, priorities = read(VIRTIO, statistics + others)
    assert port == {"receive_discards_total": 4095, "transmit_timeouts_total": 6}
    assert priorities == {}
    assert not VIRTIO.wire


def test_all_ones_is_what_firmware_could_not_fill():
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


def test_a_name_that_stands_twice_is_taken_once():
    statistics = [("rx_bytes_phy", 1), ("rx_bytes_phy", 2), ("rx_prio3_pause", 3), ("rx_prio3_pause", 4)]
    assert read(MLX5, statistics) == ({"receive_bytes_total": 1}, {"3": {"receive_pfc_frames_total": 3}})
    assert read(VIRTIO, [("rx0_drops", 1), ("rx0_drops", 2)])[0] == {"receive_discards_total": 1}


def test_no_names_and_hostile_names():
    names = ["", "rx_prio\n3_pause", "rx\u0663_drops", "[", "*", "{p}", "#", "rx_prio{p}_pause", "rx#_drops"]
    for driver in DRIVERS.values():
        assert read(driver, []) == ({}, {})
        assert read(driver, [(name, 7) for name in names])[1] == {}
    assert read(MLX5, [(name, 7) for name in names])[0] == {}


def test_a_function_without_the_port_counts_none_of_the_port():
    """The groups of the physical port stay 0 on a virtual function of mlx5: absent is not 0."""
    everything = [(name, 0) for name in MLX5_NAMES] + [("rx_prio3_pause", 0)]
    port, priorities = read(VIRTUAL["mlx5_core"], everything)
    assert port == {"out_of_buffer_total": 0, "kernel_ecn_marked_packets_total": 0}
    assert priorities == {}
    assert not VIRTUAL["mlx5_core"].wire


def test_no_driver_declares_an_ending_twice():
    for names in DRIVERS.values():
        for group in (names.port, names.priority):
            endings = [one.ending for one in group]
            assert len(endings) == len(set(endings))
            assert all(ending in ENDINGS or ending.endswith("_total") for ending in endings)


# Dumps of real devices; the numbers were read off them by hand.

DUMPS = {
    "mlx5_core": {
        "receive_bytes_total": 2202570777997,
        "transmit_bytes_total": 2662454044895,
        "receive_packets_total": 845715962,
        "transmit_packets_total": 896117891,
        "link_down_total": 0,
    },
    "ice": {
        "receive_bytes_total": 848255752,
        "transmit_bytes_total": 74057390445,
        "receive_packets_total": 12117448 + 197,
        "transmit_packets_total": 48786299 + 253 + 4,
        "fcs_errors_total": 0,
    },
    "virtio_net": {},
}


@pytest.mark.parametrize("driver", DUMPS)
def test_dumps_of_real_devices(corpus, driver):
    text = (corpus / "host" / "ethtool-S" / f"ethq-{driver}.txt").read_text()
    statistics = [(name.strip(), int(value)) for name, value in re.findall(r"^(.+): (\d+)$", text, re.MULTILINE)]
    assert len(statistics) >= 8
    port, _ = read(DRIVERS[driver], statistics)
    assert {ending: port.get(ending) for ending in DUMPS[driver]} == DUMPS[driver]
    if driver == "virtio_net":
        assert port == {}, "this one has neither drops nor timeouts"
