"""Settings and state of network devices: when they are read, their metrics, and failures."""

import errno
import os
import threading
from dataclasses import replace

import pytest

from exporter.core.blocking import BlockingCalls
from exporter.linux.ethtool_ioctl import LinkSettings
from exporter.linux.netlink.data_center_bridging import Dcb
from exporter.linux.netlink.ethtool_netlink import (
    Fec,
    LinkModes,
    LinkState,
    Pause,
)
from exporter.outputs.text import Renderer
from exporter.sources.nic import device as nic_device
from exporter.sources.nic import device_queries
from exporter.sources.nic import source as nic
from exporter.sources.nic.port_settings import FEC_BLOCKS
from tests.helpers.fake_nic_reader import (
    KERNEL,
    MLX5,
    SPEED,
    FakeNicReader,
    RateCalculator,
    hardware,
    opened,
    pci_function,
    raised,
    reasons,
    values_of,
)

MODES = LinkModes(400_000_000_000, "full", autoneg=True, lanes=4, max_speed_bits_per_second=800_000_000_000)
ANSWERS = {
    "link_modes": MODES,
    "pause": Pause(autoneg=False, receive=True, transmit=False, receive_frames=71, transmit_frames=72),
    "fec": Fec("rs", 81, 82, 83),
    "dcb": Dcb((3, 4), True, ("strict", 60, 40, 0, 0, 0, 0, 0), (1, 0, 2, 3, 4, 5, 6, 7)),
    "link_state": LinkState(up=True, down_count=91),
}
STANDARD = {
    "OctetsReceivedOK": 2**40,
    "OctetsTransmittedOK": 2**41,
    "FramesReceivedOK": 31,
    "FramesTransmittedOK": 32,
    "FrameCheckSequenceErrors": 33,
    "SymbolErrorDuringCarrier": 34,
    "AlignmentErrors": 35,
    "undersize": 36,
    "oversize": 37,
    "fragments": 38,
    "jabbers": 39,
    "MulticastFramesReceivedOK": 40,
}


@pytest.fixture
def nics():
    made = FakeNicReader()
    yield made
    os.close(made.reading)
    os.close(made.writing)


@pytest.fixture
def clock(stopped_clock):
    return stopped_clock(nic, device_queries, nic_device)


def answers(nics, name, **others):
    """Set the answers of a device to all requests: the default ones, except for those given."""
    nics.more |= {(what, name): answer for what, answer in {**ANSWERS, **others}.items()}


def times(nics, what, name="eth2"):
    return nics.calls.count((what, name))


def down(nics, name="eth2"):
    nics.devices[name] = replace(nics.devices[name], carrier=False, operstate="down", carrier_changes=7)


async def read(source):
    reading = await source.read()
    assert reading.failures == []
    return values_of(reading.tables)


# Values.


async def test_settings_and_fec_counters_of_a_rail(nics, tmp_path):
    pci_function(tmp_path, "eth2")
    (tmp_path / "class/net/eth2/device/infiniband").mkdir()
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    answers(nics, "eth2")
    async with opened(nics, tmp_path) as source:
        row = (await read(source))["eth2"]
    assert row["settings_info"] == {
        "autoneg": "on",
        "duplex": "full",
        "fec": "rs",
        "pause": "receive",
        "pfc": "3,4",
        "trust": "dscp",
        "ets": "strict,60,40,0,0,0,0,0",
        "priority_classes": "1,0,2,3,4,5,6,7",
    }
    assert (row["link_speed_bytes_per_second"], row["link_max_speed_bytes_per_second"]) == (50e9, 100e9)
    assert row["link_lanes"] == 4
    assert (row["fec_corrected_blocks_total"], row["fec_uncorrectable_blocks_total"]) == (81, 82)
    # mlx5 counts these among its statistics: there, or not at all.
    assert row["link_down_total"] == 15
    assert "receive_pause_frames_total" not in row
    assert "link_down_reason_info" not in row
    assert "settings" not in nics.asked("eth2"), "the ioctl is used only without netlink"
    assert (times(nics, "link_state"), times(nics, "standard_statistics")) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "label", "text"),
    [
        ({"pause": Pause(receive=True, transmit=True)}, "pause", "both"),
        ({"pause": Pause(receive=False, transmit=True)}, "pause", "transmit"),
        ({"pause": Pause(receive=False, transmit=False)}, "pause", "none"),
        ({"pause": Pause(receive=True)}, "pause", ""),
        ({"pause": None}, "pause", ""),
        ({"dcb": Dcb(pfc=())}, "pfc", "none"),
        ({"dcb": Dcb(pfc=(4,))}, "pfc", "4"),
        ({"dcb": Dcb(dscp_rules=False)}, "pfc", ""),
        ({"dcb": Dcb(pfc=(4,))}, "ets", ""),
        ({"dcb": Dcb(pfc=(4,))}, "priority_classes", ""),
        ({"fec": Fec("none")}, "fec", "none"),
        ({"fec": None}, "fec", ""),
        ({"link_modes": replace(MODES, autoneg=False)}, "autoneg", "off"),
        ({"link_modes": replace(MODES, autoneg=None, duplex=None)}, "duplex", ""),
        ({"link_modes": replace(MODES, autoneg=None), "pause": Pause(autoneg=True)}, "autoneg", ""),
        ({"link_modes": None}, "duplex", "half"),
        ({"link_modes": None}, "autoneg", "off"),
    ],
)
async def test_settings_labels_are_empty_if_not_known(nics, answer, label, text):
    nics.add(hardware("eth2", 5))
    nics.speeds["eth2"] = LinkSettings(SPEED, "half", autoneg=False)
    answers(nics, "eth2", **answer)
    async with opened(nics) as source:
        assert (await read(source))["eth2"]["settings_info"][label] == text


@pytest.mark.parametrize(
    ("driver", "rules", "trust"),
    [
        ("mlx5_core", True, "dscp"),
        ("mlx5_core", False, "pcp"),
        ("mlx5_core", None, ""),
        ("bnxt_en", True, "dscp"),
        ("bnxt_en", False, ""),  # its firmware may go by DSCP without a rule here
        ("ice", False, ""),
        (None, False, ""),
    ],
)
async def test_trust_is_derived_from_dscp_rules_only_for_drivers_that_report_it(nics, driver, rules, trust):
    nics.add(hardware("eth2", 5), driver=driver)
    answers(nics, "eth2", dcb=Dcb(dscp_rules=rules))
    async with opened(nics) as source:
        assert (await read(source))["eth2"]["settings_info"]["trust"] == trust


async def test_device_without_settings_has_no_settings_info(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    nics.speeds["eth2"] = None
    async with opened(nics) as source:
        row = (await read(source))["eth2"]
    assert not {"settings_info", "link_lanes", "link_max_speed_bytes_per_second", *FEC_BLOCKS} & row.keys()


async def test_maximum_speed_is_exported_for_rdma_ports_only(nics, tmp_path):
    for place, name in enumerate(("eth2", "mgmt")):
        pci_function(tmp_path, name)
        nics.add(hardware(name, 5 + place), statistics=MLX5)
        answers(nics, name)
    (tmp_path / "class/net/eth2/device/infiniband").mkdir()
    async with opened(nics, tmp_path) as source:
        found = await read(source)
    assert found["eth2"]["link_max_speed_bytes_per_second"] == 100e9
    assert "link_max_speed_bytes_per_second" not in found["mgmt"]


async def test_reason_is_exported_while_the_link_is_down(nics, tmp_path):
    pci_function(tmp_path, "eth2")
    (tmp_path / "class/net/eth2/device/infiniband").mkdir()
    nics.add(hardware("eth2", 5), statistics=MLX5)
    answers(nics, "eth2", link_state=LinkState(up=False, reason="no_cable"))
    async with opened(nics, tmp_path) as source:
        up = nics.devices["eth2"]
        down(nics)
        row = (await read(source))["eth2"]
        assert row["link_down_reason_info"] == {"reason": "no_cable"}
        assert not {"link_speed_bytes_per_second", "link_lanes"} & row.keys(), "drivers report these without a link"
        assert row["link_max_speed_bytes_per_second"] == 100e9
        nics.more["link_state", "eth2"] = LinkState(up=False)
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier_changes=9)
        assert "link_down_reason_info" not in (await read(source))["eth2"]
        nics.devices["eth2"] = up
        row = (await read(source))["eth2"]
    assert "link_down_reason_info" not in row
    assert (row["link_speed_bytes_per_second"], row["link_lanes"]) == (50e9, 4)


async def test_reason_of_a_link_that_is_up_is_ignored(nics):
    nics.add(hardware("eth2", 5), driver="ionic")
    answers(nics, "eth2", link_state=LinkState(reason="no_cable", down_count=1))
    async with opened(nics) as source:
        row = (await read(source))["eth2"]
    assert row["link_down_total"] == 1
    assert "link_down_reason_info" not in row


async def test_only_the_speed_of_a_bond_is_read(nics):
    nics.add(replace(hardware("bond0", 9), kind="bond"), driver="bonding", speed=0)
    answers(nics, "bond0")
    async with opened(nics) as source:
        row = (await read(source))["bond0"]
    assert row.keys() == {"info", "link_up", "link_speed_bytes_per_second"}
    assert [what for what, name in nics.calls if name == "bond0"] == ["link_modes"]


# Origin of counters.

IONIC = {"octets_rx_ok": 5, "frames_rx_ok": 6}


@pytest.mark.parametrize(
    ("driver", "statistics", "state", "count"),
    [
        ("mlx5_core", MLX5, LinkState(down_count=91), 15),
        ("ionic", IONIC, LinkState(down_count=91), 91),
        ("ionic", IONIC, LinkState(), 4),
        ("ionic", IONIC, None, 4),
        ("r8169", {}, LinkState(down_count=91), 91),
        ("mlx5_core", {"rx_bytes_phy": 1}, LinkState(down_count=91), None),
    ],
)
async def test_link_down_counter_is_the_drivers_then_ethtools_then_the_kernels(nics, driver, statistics, state, count):
    nics.add(hardware("eth2", 5, carrier_down_count=4), driver=driver, statistics=statistics)
    answers(nics, "eth2", link_state=state)
    async with opened(nics) as source:
        assert (await read(source))["eth2"].get("link_down_total") == count


async def test_failed_counter_is_not_replaced_by_another_origin(nics):
    nics.add(hardware("eth2", 5, carrier_down_count=4, stats=KERNEL), driver="ionic", statistics=IONIC)
    answers(nics, "eth2", link_state=raised(errno.EIO))
    meaning = RateCalculator()
    async with opened(nics) as source:
        for answer, count in ((raised(errno.EIO), None), (LinkState(down_count=91), 91), (raised(errno.EIO), None)):
            nics.more["link_state", "eth2"] = answer
            nics.devices["eth2"] = replace(nics.devices["eth2"], carrier_changes=len(nics.calls))
            row = meaning(await source.read())["eth2"]
            assert row.get("link_down_total") == count
    assert row["resets_total"] == 0


BNXT = {"rx_bytes": 5, "rx_fec_corrected_blocks": 61, "rx_fec_uncorrectable_blocks": 62}


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (Fec("rs", 81, 82), (81, 82)),
        (Fec("none"), (None, None)),
        (None, (61, 62)),
        (raised(errno.EIO), (None, None)),
    ],
)
async def test_fec_blocks_are_those_of_ethtool_netlink_else_the_drivers(nics, answer, counts):
    nics.add(hardware("eth2", 5), driver="bnxt_en", statistics=BNXT)
    answers(nics, "eth2", fec=answer)
    async with opened(nics) as source:
        row = values_of((await source.read()).tables)["eth2"]
    assert tuple(row.get(ending) for ending in FEC_BLOCKS) == counts


@pytest.mark.parametrize(
    ("driver", "statistics", "count"),
    [
        ("fbnic", {}, 83),
        ("ice", {"rx_bytes.nic": 1}, 83),
        ("mlx5_core", {"rx_bytes_phy": 1, "rx_corrected_bits_phy": 7}, 7),
        ("mlx5_core", {"rx_bytes_phy": 1}, None),  # one counter has one origin, and the driver's may reappear
    ],
)
async def test_fec_corrected_bits_are_the_drivers_else_those_of_ethtool_netlink(nics, driver, statistics, count):
    nics.add(hardware("eth2", 5), driver=driver, statistics=statistics)
    answers(nics, "eth2")
    async with opened(nics) as source:
        assert (await read(source))["eth2"].get("fec_corrected_errors_total") == count
    async with opened(nics, keep=()) as source:
        assert "fec_corrected_errors_total" not in (await read(source))["eth2"], "it is not exported"


async def test_unlisted_driver_has_standard_statistics(nics, clock):
    """A driver whose kernel counters stay 0, as those of idpf did, has the counters of its device."""
    nics.add(hardware("eth2", 5, stats=dict.fromkeys(KERNEL, 0)), driver="idpf", statistics={"rx_bytes": 9})
    answers(nics, "eth2", standard_statistics=STANDARD)
    meaning = RateCalculator()
    async with opened(nics) as source:
        reading = await source.read()
        assert reading.failures == []
        row = meaning(reading)["eth2"]
        clock.now += 4
        nics.more["standard_statistics", "eth2"] = STANDARD | {"OctetsReceivedOK": 2**40 + 4000}
        later = meaning(await source.read())["eth2"]
    assert row["info"]["traffic"] == "wire"
    expected = {
        "receive_bytes_total": 2**40,
        "transmit_bytes_total": 2**41,
        "receive_packets_total": 31,
        "transmit_packets_total": 32,
        "fcs_errors_total": 33,
        "symbol_errors_total": 34,
        "alignment_errors_total": 35,
        "receive_undersize_packets_total": 36,
        "receive_oversize_packets_total": 37,
        "receive_fragments_total": 38,
        "receive_jabbers_total": 39,
        "receive_pause_frames_total": 71,
        "transmit_pause_frames_total": 72,
        "kernel_receive_bytes_total": 0,
    }
    assert {ending: row[ending] for ending in expected} == expected
    assert later["receive_bytes_per_second"] == 1000.0
    assert "statistics" not in nics.asked("eth2")
    assert (times(nics, "standard_statistics"), times(nics, "pause")) == (2, 2)


async def test_kernel_bytes_never_replace_device_bytes(nics):
    """Bytes of different origins in consecutive reads would give a wrong rate."""
    nics.add(hardware("eth2", 5, stats=KERNEL), driver="idpf")
    answers(nics, "eth2", standard_statistics=raised(errno.EIO))
    async with opened(nics) as source:

        async def bytes_and_traffic():
            row = values_of((await source.read()).tables)["eth2"]
            return row.get("receive_bytes_total"), row["info"]["traffic"]

        assert await bytes_and_traffic() == (None, "")
        nics.more["standard_statistics", "eth2"] = STANDARD
        assert await bytes_and_traffic() == (2**40, "wire")
        nics.more["standard_statistics", "eth2"] = raised(errno.EIO)
        assert await bytes_and_traffic() == (None, "wire")
        nics.more["standard_statistics", "eth2"] = {}
        assert await bytes_and_traffic() == (None, "wire")


async def test_no_bytes_are_exported_before_the_driver_is_known(nics):
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    answers(nics, "eth2", standard_statistics=STANDARD)
    nics.drivers["eth2"] = raised(errno.EIO)
    async with opened(nics) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth2", "eio")]
    row = values_of(reading.tables)["eth2"]
    assert "receive_bytes_total" not in row
    assert (row["link_speed_bytes_per_second"], row["info"]["traffic"]) == (50e9, "")


async def test_device_without_standard_statistics_has_kernel_counters(nics):
    nics.add(hardware("eth2", 5, stats=KERNEL), driver="r8169")
    nics.more["standard_statistics", "eth2"] = {}
    async with opened(nics) as source:
        row = (await read(source))["eth2"]
    assert (row["receive_bytes_total"], row["info"]["traffic"]) == (101, "kernel")


# Schedule.


async def test_settings_are_read_after_link_changes_and_when_too_old(nics, clock):
    nics.add(hardware("eth2", 5, carrier_changes=1), statistics=MLX5)
    answers(nics, "eth2")
    slow = ("link_modes", "pause", "dcb")
    async with opened(nics) as source:

        async def asked():
            nics.calls.clear()
            await read(source)
            return [times(nics, what) for what in slow], times(nics, "fec"), times(nics, "statistics")

        assert await asked() == ([1, 1, 1], 1, 1)
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS / 2
        assert await asked() == ([0, 0, 0], 1, 1)
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS / 2
        assert await asked() == ([1, 1, 1], 1, 1)
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier_changes=3)
        assert await asked() == ([1, 1, 1], 1, 1)
        assert await asked() == ([0, 0, 0], 1, 1)


REQUESTS = ("link_modes", "pause", "fec", "dcb", "link_state", "standard_statistics")


async def test_unsupported_queries_are_not_repeated_for_the_same_device(nics, clock):
    nics.add(hardware("eth2", 5), driver="r8169")
    async with opened(nics) as source:
        for changes in range(3):
            nics.devices["eth2"] = hardware("eth2", 5, carrier_changes=changes)
            clock.now += 2 * device_queries.SETTINGS_MAX_AGE_SECONDS
            await read(source)
        assert [times(nics, what) for what in REQUESTS] == [1] * len(REQUESTS)
        nics.devices["eth2"] = hardware("eth2", 6)  # its driver was loaded again
        await read(source)
        assert [times(nics, what) for what in REQUESTS] == [2] * len(REQUESTS)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPERM])
@pytest.mark.parametrize("what", REQUESTS)
async def test_refused_queries_are_no_failure_and_wait(nics, clock, what, number):
    nics.add(hardware("eth2", 5), driver="r8169")
    answers(nics, "eth2", standard_statistics=STANDARD)
    nics.more[what, "eth2"] = raised(number)
    async with opened(nics) as source:
        for _ in range(3):
            await read(source)
        assert times(nics, what) == 1
        clock.now += device_queries.SETTINGS_MAX_AGE_SECONDS
        await read(source)
        assert times(nics, what) == 2


# Failures.


@pytest.mark.parametrize("what", REQUESTS)
async def test_failed_query_affects_only_its_values(nics, what):
    nics.add(hardware("eth2", 5, stats=KERNEL), driver="idpf")
    answers(nics, "eth2", standard_statistics=STANDARD)
    async with opened(nics) as source:
        whole = (await read(source))["eth2"]
        nics.more[what, "eth2"] = raised(errno.EIO)
        nics.devices["eth2"] = replace(nics.devices["eth2"], carrier_changes=2)
        reading = await source.read()
        part = values_of(reading.tables)["eth2"]
        assert reasons(reading) == [("eth2", "eio")]
        assert len(reading.failures[0].detail) > len("eth2: ")
        nics.more[what, "eth2"] = {**ANSWERS, "standard_statistics": STANDARD}[what]
        assert (await read(source))["eth2"] == whole | {"carrier_changes_total": 2}, "it is read again at once"
    missing = {
        "link_modes": {"link_speed_bytes_per_second", "link_lanes"},
        "pause": {"receive_pause_frames_total", "transmit_pause_frames_total"},
        "fec": {"fec_corrected_blocks_total", "fec_uncorrectable_blocks_total", "fec_corrected_errors_total"},
        "dcb": set(),
        "link_state": {"link_down_total"},
        "standard_statistics": {
            ending for ending in nic.SCHEMA.metrics if ending in nic_device.STANDARD_STATISTICS.values()
        },
    }[what]
    assert whole.keys() - part.keys() == missing
    assert {key: value for key, value in part.items() if value != whole.get(key)}.keys() <= {
        "carrier_changes_total",
        "settings_info",
    }


async def test_device_removed_during_a_read_is_one_failure(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5)
    answers(nics, "eth2")
    async with opened(nics) as source:
        await read(source)
        nics.counts["eth2"] = raised(errno.ENODEV)
        for what in REQUESTS:
            nics.more[what, "eth2"] = raised(errno.ENODEV)
        assert reasons(await source.read()) == [("eth2", "enodev")]


async def test_hanging_query_is_a_timeout_of_its_device_only(nics, monkeypatch):
    release = threading.Event()

    def hang():
        release.wait(60)
        return Fec()

    for place, name in enumerate(("eth2", "eth3")):
        nics.add(hardware(name, 5 + place, stats=KERNEL), statistics=MLX5)
        answers(nics, name)
    nics.more["fec", "eth2"] = hang
    try:
        async with opened(nics) as source:
            monkeypatch.setattr(source, "_serial", BlockingCalls("nic", 0.3))
            for _ in range(2):
                reading = await source.read()
                assert reasons(reading) == [("eth2", "timeout")]
                found = values_of(reading.tables)
                assert found["eth3"]["fec_corrected_blocks_total"] == 81
                assert "receive_bytes_total" not in found["eth2"], "the kernel's count is of other packets"
                assert found["eth2"]["link_up"] == 1
            assert times(nics, "fec") == 1
    finally:
        release.set()


# Counter sets that change.


async def test_pfc_moved_to_another_priority_gives_no_rate_across_priorities(nics, clock):
    """The names change but not their number: a plan cached by number would mix up priorities 3 and 4."""
    names = ("rx_prio{}_pause", "rx_prio{}_pause_duration")
    nics.add(hardware("eth2", 5), statistics=MLX5 | {name.format(3): 10_000_000 for name in names})
    meaning = RateCalculator()
    async with opened(nics) as source:
        meaning(await source.read())
        clock.now += 5
        nics.counts["eth2"] = {name.replace("prio3", "prio4"): value + 500_000 for name, value in MLX5.items()}
        found = meaning(await source.read())
        assert ("eth2", "3") not in found
        assert found["eth2", "4"] == {"receive_pfc_frames_total": 500_016, "receive_pfc_paused_seconds_total": 1.25}
        clock.now += 5
        nics.counts["eth2"] = {**nics.counts["eth2"], "rx_prio4_pause_duration": 3_750_000}
        found = meaning(await source.read())
    assert found["eth2", "4"]["receive_pfc_paused_ratio"] == 0.5
    assert found["eth2"]["resets_total"] == 0


async def test_missing_statistics_do_not_reset_other_rates(nics, clock):
    nics.add(hardware("eth2", 5), statistics={"rx_bytes_phy": 1000, "rx_prio3_pause": 7})
    meaning = RateCalculator()
    async with opened(nics) as source:
        for value, whole in ((1000, True), (6000, False), (11_000, True)):
            nics.counts["eth2"] = {"rx_bytes_phy": value} | ({"rx_prio3_pause": 7 + value} if whole else {})
            found = meaning(await source.read())
            clock.now += 5
    assert found["eth2"]["receive_bytes_per_second"] == 1000.0
    assert found["eth2"]["resets_total"] == 0


async def test_statistics_that_grow_during_a_read_are_read_next_time(nics):
    """The ioctl fails with EAGAIN when the number of statistics keeps changing; nothing is exported."""
    nics.add(hardware("eth2", 5), statistics={"rx_bytes_phy": 1, "tx_bytes_phy": 2})
    async with opened(nics) as source:
        await read(source)
        nics.counts["eth2"] = raised(errno.EAGAIN)
        reading = await source.read()
        assert reasons(reading) == [("eth2", "eagain")]
        assert "receive_bytes_total" not in values_of(reading.tables)["eth2"]
        nics.counts["eth2"] = {"rx_prio3_pause": 3, "rx_bytes_phy": 4, "ch0_poll": 9, "tx_bytes_phy": 5}
        found = await read(source)
    assert (found["eth2"]["receive_bytes_total"], found["eth2"]["transmit_bytes_total"]) == (4, 5)
    assert found["eth2", "3"] == {"receive_pfc_frames_total": 3}


async def test_reloaded_driver_resets_all_its_rows(nics, clock):
    nics.add(hardware("eth2", 5), statistics={"rx_bytes_phy": 1000, "rx_prio3_pause_duration": 9_000_000})
    answers(nics, "eth2")
    meaning = RateCalculator()
    async with opened(nics) as source:
        meaning(await source.read())
        nics.add(hardware("eth2", 6), statistics={"rx_bytes_phy": 2000, "rx_prio3_pause_duration": 9_500_000})
        answers(nics, "eth2", fec=Fec("rs", 500, 3))
        clock.now += 5
        found = meaning(await source.read())
    assert found["eth2"]["resets_total"] == 1
    assert found["eth2"]["fec_corrected_blocks_total"] == 500
    assert "receive_bytes_per_second" not in found["eth2"]
    assert "receive_pfc_paused_ratio" not in found["eth2", "3"]


async def test_percentage_is_exported_as_a_ratio(nics, clock):
    nics.add(hardware("eth2", 5), statistics={"outbound_pci_stalled_wr": 37, "outbound_pci_stalled_wr_events": 5})
    meaning = RateCalculator()
    async with opened(nics) as source:
        row = meaning(await source.read())["eth2"]
        assert (row["pci_write_stalled_ratio"], row["pci_write_stalled_seconds_total"]) == (0.37, 5)
        clock.now += 5
        nics.counts["eth2"] = {"outbound_pci_stalled_wr": 2, "outbound_pci_stalled_wr_events": 6}
        row = meaning(await source.read())["eth2"]
    assert (row["pci_write_stalled_ratio"], row["pci_write_stalled_seconds_total"]) == (0.02, 6)
    assert row["resets_total"] == 0, "a ratio that decreased is no reset"


async def test_each_driver_has_its_own_table(nics):
    nics.add(hardware("eth2", 5, stats=KERNEL), statistics=MLX5)
    nics.add(hardware("eth3", 6, stats=KERNEL), driver="ice", statistics={"rx_bytes.nic": 7, "rx_bytes": 8})
    nics.add(hardware("eth4", 7, stats=KERNEL), driver="ionic", statistics={"octets_rx_ok": 9, "frames_rx_pripause": 4})
    async with opened(nics) as source:
        found = await read(source)
    assert [found[name]["receive_bytes_total"] for name in ("eth2", "eth3", "eth4")] == [2**63 + 1, 7, 9]
    assert found["eth4", ""] == {"receive_pfc_frames_total": 4}, "counted for all priorities together"


# Raw statistics.


async def test_raw_statistics_are_exported_by_the_drivers_names(nics):
    statistics = [
        ("rx_bytes_phy", 1),
        ("rx_prio3_pause", 2),
        ("rx_steer_missed_packets", 3),
        ("port.rx_dropped", 12028),
        ("rx_dropped", 0),
        ("giant hdr", 5),
        ("giant hdr", 6),
        ("  Tx Queue#", 7),
        ("RxTIDFLGMs,32", 2**64 - 2),
        ("rx_dropped_for_good", 2**64 - 1),
        ("", 8),
        ("ch0_poll", 9),
    ]
    nics.add(hardware("eth2", 5))
    nics.counts["eth2"] = statistics
    async with opened(nics, raw=("rx_*", "port.*", "giant*", "  Tx*", "Rx*", "", "*missed*")) as source:
        reading = await source.read()
    assert reading.failures == []
    found = values_of(reading.tables)
    raw = {key[1]: row["raw"] for key, row in found.items() if isinstance(key, tuple) and "raw" in row}
    assert raw == {
        "port.rx_dropped": 12028,
        "rx_dropped": 0,
        "giant hdr": 5,
        "  Tx Queue#": 7,
        "RxTIDFLGMs,32": 2**64 - 2,
    }
    assert found["eth2"]["steering_misses_total"] == 3
    text = b"".join(Renderer(openmetrics=False).render(reading.tables)).decode()
    assert "# TYPE fabric_nic_raw untyped\n" in text
    assert 'fabric_nic_raw{device="eth2",name="port.rx_dropped"} 12028\n' in text


async def test_raw_statistics_are_off_by_default(nics):
    nics.add(hardware("eth2", 5), statistics=MLX5 | {"anything": 1})
    async with opened(nics) as source:
        assert (await read(source)).keys() == {"eth2", ("eth2", "3")}


async def test_raw_statistics_of_an_unlisted_driver(nics):
    nics.add(hardware("eth2", 5, stats=KERNEL), driver="tg3", statistics={"rx_octets": 60, "interface_up": 1})
    async with opened(nics, raw=("*",)) as source:
        found = await read(source)
    assert found["eth2", "rx_octets"] == {"raw": 60}
    assert found["eth2", "interface_up"] == {"raw": 1}
    assert found["eth2"]["receive_bytes_total"] == 101


async def test_statistics_are_mapped_again_when_the_drivers_name_changes(nics, tmp_path):
    """sysfs has mlx4_core for a port whose driver reports itself as mlx4_en."""
    pci_function(tmp_path, "eth2", "mlx4_core")
    nics.add(hardware("eth2", 5), driver="mlx4_en", statistics={"rx_pause": 3, "rx_packets": 4})
    driver, nics.drivers["eth2"] = nics.drivers["eth2"], raised(errno.EIO)
    async with opened(nics, tmp_path, raw=("rx_*",)) as source:
        found = values_of((await source.read()).tables)
        assert found["eth2", "rx_pause"] == {"raw": 3}
        nics.drivers["eth2"] = driver
        found = await read(source)
    assert found["eth2"]["receive_pause_frames_total"] == 3
    assert ("eth2", "rx_pause") not in found
    assert found["eth2", "rx_packets"] == {"raw": 4}


async def test_raw_statistics_are_limited(nics):
    statistics = {f"rx{number}_packets": number for number in range(nic_device.MAX_RAW_STATISTICS + 5)}
    nics.add(hardware("eth2", 5), statistics=statistics)
    nics.add(hardware("eth3", 6), statistics={"rx7_packets": 1})
    async with opened(nics, raw=("rx*_packets",)) as source:
        reading = await source.read()
    assert reasons(reading) == [("eth2", "too_many")]
    assert f"{nic_device.MAX_RAW_STATISTICS + 5} statistics match sources.nic.raw" in reading.failures[0].detail
    found = values_of(reading.tables)
    assert sum(key[0] == "eth2" for key in found if isinstance(key, tuple)) == nic_device.MAX_RAW_STATISTICS
    assert found["eth3", "rx7_packets"] == {"raw": 1}
