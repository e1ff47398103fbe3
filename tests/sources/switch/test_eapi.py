"""Reader of Arista's eAPI: results become rows, and a failed command affects only its own columns.

All data is synthetic, in published structures; that of PFC by priority is in none of them, so it is a guess.
"""

import contextlib

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.source import SourceError
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.options import Eapi, Target
from exporter.sources.switch.readers import command_reader
from exporter.sources.switch.readers.command_reader import LLDP
from exporter.sources.switch.readers.eapi.clock import SwitchClock
from exporter.sources.switch.readers.eapi.reader import (
    DROPS,
    ECN,
    HOSTNAME,
    INTERFACES,
    PFC,
    PFC_DETAIL,
    POLL_COMMANDS,
    TRANSCEIVER_DOM,
    VERSION,
    EapiReader,
)
from exporter.switch_api.eapi import parser
from exporter.switch_api.eapi.client import EapiClient
from exporter.switch_api.errors import CommandError, UnsupportedError
from exporter.switch_api.port import ShapeError
from tests.simulators.eapi import EapiSimulator, EapiSwitch

PASSWORD = "tr0ub4dor-and-3"
LONG = 60.0


def interface(*, up=True, refreshed=1_700_000_000.5, **counters):
    return {
        "name": "x",
        "hardware": "ethernet",
        "description": "to gpu-001",
        "bandwidth": 400_000_000_000,
        "mtu": 9214,
        "interfaceStatus": "connected" if up else "notconnect",
        "lineProtocolStatus": "up" if up else "down",
        "interfaceCounters": {
            "counterRefreshTime": refreshed,
            "linkStatusChanges": 3,
            "inOctets": 2**63 + 1,
            "outOctets": 22,
            "inUcastPkts": 1,
            "inMulticastPkts": 2,
            "inBroadcastPkts": 3,
            "totalInErrors": 0,
            "inDiscards": 4,
            "inputErrorsDetail": {"rxPause": 5, "fcsErrors": 6, "symbolErrors": 7},
            "outputErrorsDetail": {"txPause": 8},
            **counters,
        },
    }


def results():
    return {
        INTERFACES: {"interfaces": {"Ethernet1/1": interface(), "Ethernet2/1": interface(up=False, inOctets=9)}},
        PFC: {"interfaceCounters": {"Ethernet1/1": {"rxFrames": 31, "txFrames": 32}}},
        ECN: {"intfQueueCounters": {"Ethernet1/1": {"queueCounters": {"0": "-", "1": "5", "10": "0"}}}},
        DROPS: {
            "egressQueueCounters": {
                "interfaces": {
                    "Ethernet1/1": {
                        "ucastQueues": {
                            "trafficClasses": {
                                "TC1": {"dropPrecedences": {"DP0": {"droppedPackets": 2}, "DP1": {"droppedPackets": 3}}}
                            }
                        },
                        "mcastQueues": {
                            "trafficClasses": {
                                "TC1": {"dropPrecedences": {"DP0": {"droppedPackets": 4}}},
                                "TC0-2": {"dropPrecedences": {"DP0": {"droppedPackets": 99}}},
                            }
                        },
                    }
                }
            }
        },
        VERSION: {"modelName": "DCS-SIM-64", "version": "4.31.1F", "uptime": 86400.5},
        HOSTNAME: {"hostname": "leaf-a", "fqdn": "leaf-a.example.com"},
        LLDP: {
            "lldpNeighbors": {
                "Ethernet1/1": {
                    "lldpNeighborInfo": [
                        {
                            "chassisId": "a088.c200.1008",
                            "systemName": "gpu-001",
                            "systemDescription": "Linux",
                            "systemCapabilities": {"bridge": False, "stationOnly": True},
                            "neighborInterfaceInfo": {
                                "interfaceId": '"eth2"',
                                "interfaceDescription": "rail 0",
                            },
                            "managementAddresses": [{"address": "192.0.2.7", "addressType": "ipv4"}],
                        }
                    ]
                },
                "Ethernet2/1": {"lldpNeighborInfo": []},
            }
        },
        TRANSCEIVER_DOM: {
            "interfaces": {
                "Ethernet1/1": {
                    "temperature": 40.5,
                    "voltage": 3.3,
                    "rxPower": 0.0,
                    "txPower": -30.1,
                    "txBias": 6.5,
                },
                "Ethernet2/1": {},
            }
        },
    }


@contextlib.asynccontextmanager
async def started(switch=None, given=None, **options):
    switch = switch or EapiSwitch(answers=results(), password=PASSWORD)
    async with EapiSimulator(switch) as simulator:
        given = given or Eapi(username="monitor", password=PASSWORD, timeout=20.0)
        reader = EapiReader(Target(name="leaf-1", address=simulator.url, eapi=given, **options), given, LONG)
        reader.switch = switch
        try:
            yield reader
        finally:
            await reader.close()


def rows(harvest):
    found = {}
    for part in harvest.parts:
        for place, key in enumerate(part.keys):
            row = found.setdefault((*part.schema.labels[2:], *key), {})
            row |= {e: c.values[place] for e, c in part.columns.items() if c.values[place] is not None}
    return found


async def test_results_become_rows():
    async with started() as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    found = rows(harvest)
    assert found["Ethernet1/1",] == {
        "mtu_bytes": 9214,
        "receive_bytes_total": 2**63 + 1,
        "transmit_bytes_total": 22,
        "receive_unicast_packets_total": 1,
        "receive_multicast_packets_total": 2,
        "receive_broadcast_packets_total": 3,
        "receive_packets_total": 6,
        "receive_errors_total": 0,
        "receive_discards_total": 4,
        "receive_pause_frames_total": 5,
        "transmit_pause_frames_total": 8,
        "fcs_errors_total": 6,
        "symbol_errors_total": 7,
        "receive_pfc_all_priorities_frames_total": 31,
        "transmit_pfc_all_priorities_frames_total": 32,
        "ecn_marked_packets_total": 5,
        "congestion_discards_total": 9,
        "link_up": 1,
        "admin_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("leaf-1", "", "to gpu-001", "6", "physical"),
    }
    assert found["Ethernet2/1",]["receive_bytes_total"] == 9
    assert found["Ethernet2/1",]["link_up"] == 0
    assert "link_speed_bytes_per_second" not in found["Ethernet2/1",]
    assert found["queue", "Ethernet1/1", "1"] == {
        "queue_ecn_marked_packets_total": 5,
        "queue_full_discards_total": 9,
    }
    assert found["queue", "Ethernet1/1", "10"] == {"queue_ecn_marked_packets_total": 0}
    assert ("queue", "Ethernet1/1", "0") not in found  # `-` means not counted, which is absent and not 0
    assert (harvest.device.name, harvest.device.model, harvest.device.version) == ("leaf-a", "DCS-SIM-64", "4.31.1F")
    assert harvest.device.uptime == pytest.approx(86400.5, abs=60)
    (one,) = harvest.neighbours
    assert (one.port, one.chassis, one.peer_port, one.name) == ("Ethernet1/1", "a0:88:c2:00:10:08", "eth2", "gpu-001")
    assert (one.capabilities, one.addresses) == (frozenset({"station"}), ("192.0.2.7",))


async def test_pfc_by_priority_replaces_the_sum():
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    detail = {"3": {"rxPfcFrames": 11, "txPfcFrames": 12}, "4": {"rxPfcFrames": 0, "txPfcFrames": 0}}
    switch.answers[PFC_DETAIL] = {"interfaceCounters": {"Ethernet1/1": {"rxFrames": 11, "priorities": detail}}}
    async with started(switch) as reader:
        found = rows(await reader.read())
    assert found["priority", "Ethernet1/1", "3"] == {"receive_pfc_frames_total": 11, "transmit_pfc_frames_total": 12}
    assert found["priority", "Ethernet1/1", "4"] == {"receive_pfc_frames_total": 0, "transmit_pfc_frames_total": 0}
    assert "receive_pfc_all_priorities_frames_total" not in found["Ethernet1/1",]


async def test_modules_are_read_with_optics():
    async with started(optics=True) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert found["lane", "Ethernet1/1", "1"] == {
        "module_lane_receive_power_watts": 0.001,
        "module_lane_transmit_power_watts": pytest.approx(9.77e-7, rel=1e-2),
        "module_lane_bias_amperes": 0.0065,
    }
    assert found["Ethernet1/1",]["module_temperature_celsius"] == 40.5
    assert "module_voltage_volts" not in found["Ethernet2/1",]
    assert harvest.families[Family.OPTICS] is Support.COUNTED


async def test_an_unsupported_command_does_not_affect_others_and_is_retried_later(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    del switch.answers[ECN]
    async with started(switch) as reader:
        harvest = await reader.read()
        assert harvest.failures == []
        assert harvest.families[Family.ECN] is Support.UNSUPPORTED
        assert rows(harvest)["Ethernet1/1",]["congestion_discards_total"] == 9
        clock.now += 10
        switch.requests.clear()
        assert (await reader.read()).families[Family.ECN] is Support.UNSUPPORTED
        assert switch.requests == [[INTERFACES, PFC, DROPS]]
        clock.now += 4000
        switch.answers[ECN] = results()[ECN]
        assert (await reader.read()).families[Family.ECN] is Support.COUNTED


@pytest.mark.parametrize("command", [PFC, ECN, DROPS])
async def test_a_failed_command_affects_only_its_columns(command):
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    switch.faults.errors[command] = (1001, "internal error", ["the agent is not running"])
    async with started(switch) as reader:
        harvest = await reader.read()
    (failure,) = harvest.failures
    assert (failure.device, failure.reason) == (command, "refused")
    assert "the agent is not running" in failure.detail
    assert rows(harvest)["Ethernet1/1",]["receive_bytes_total"] == 2**63 + 1


@pytest.mark.parametrize("reasons", ["This is an unconverted command", "Command cannot be converted: no JSON output"])
async def test_commands_without_json_are_unsupported(reasons):
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    switch.faults.errors[DROPS] = (1003, reasons, [reasons])
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    assert harvest.families[Family.QUEUES] is Support.UNSUPPORTED


async def test_a_result_of_unknown_structure_is_reported():
    switch = EapiSwitch(answers=results() | {ECN: {"something": "else"}}, password=PASSWORD)
    switch.answers[INTERFACES]["interfaces"]["Ethernet1/1"]["interfaceCounters"]["outOctets"] = "many"
    async with started(switch) as reader:
        harvest = await reader.read()
    assert {(one.device, one.reason) for one in harvest.failures} == {(ECN, "malformed"), (INTERFACES, "malformed")}
    assert harvest.families[Family.ECN] is Support.FAILED
    assert "transmit_bytes_total" not in rows(harvest)["Ethernet1/1",]


async def test_ports_have_the_time_at_which_the_switch_read_its_counters(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    ports = switch.answers[INTERFACES]["interfaces"]

    async def times(first, second):
        ports["Ethernet1/1"]["interfaceCounters"]["counterRefreshTime"] = first
        ports["Ethernet2/1"]["interfaceCounters"]["counterRefreshTime"] = second
        harvest = await reader.read()
        return next(part.times for part in harvest.parts if part.keys[0] == ("Ethernet1/1",))

    async with started(switch) as reader:
        assert await times(100.0, 98.0) == [clock.now, clock.now - 2]
        clock.now += 10
        # Only the counters of the second port were refreshed.
        assert await times(100.0, 107.0) == [clock.now - 10, clock.now - 3]
        clock.now += 10
        assert await times(119.0, 117.0) == [clock.now - 1, clock.now - 3]


def test_a_clock_of_the_switch_that_is_set_back():
    clock = SwitchClock()
    assert clock.to_monotonic([1000.0, None], 10.0) == [10.0, 10.0]
    assert clock.to_monotonic([500.0], 20.0) == [20.0]
    assert clock.to_monotonic([510.0], 30.0) == [30.0]
    assert clock.to_monotonic([100_000.0], 40.0) == [40.0]


async def test_a_restart_of_the_switch_changes_the_epochs(stopped_clock):
    clock = stopped_clock(command_reader)
    async with started() as reader:
        before = (await reader.read()).parts[0].epochs
        reader.switch.answers[VERSION]["uptime"] = 10.0
        clock.now += 61
        assert (await reader.read()).parts[0].epochs != before


# --- failures of the whole poll


async def failed_read(reader):
    with pytest.raises(SourceError) as caught:
        await reader.read()
    assert PASSWORD not in str(caught.value)
    return caught.value.reason, str(caught.value)


async def test_a_wrong_password_is_sent_once(tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")
    async with started(given=Eapi(username="monitor", password_file=str(file), timeout=20.0)) as reader:
        reason, text = await failed_read(reader)
        assert reason == "login"
        assert "HTTP 401" in text
        assert "check user and password" in text
        assert (await failed_read(reader))[0] == "login_backoff"
        assert reader.switch.refused == 1
        file.write_text(PASSWORD)
        await failed_read(reader)
        assert rows(await reader.read())


async def test_an_html_page_instead_of_json():
    async with started() as reader:
        reader.switch.faults.html = True
        reason, text = await failed_read(reader)
        assert reason == "malformed"
        assert "an HTML page instead of a result" in text
        assert "management api http-commands" in text


async def test_a_poll_without_ports_fails():
    switch = EapiSwitch(answers=results(), password=PASSWORD)
    switch.faults.errors[INTERFACES] = (1000, "could not run command", ["permission to run command denied"])
    async with started(switch) as reader:
        reason, text = await failed_read(reader)
    assert reason == "refused"
    assert "permission to run command denied" in text


async def test_an_untrusted_certificate(tmp_path):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
    async with EapiSimulator(EapiSwitch(password=PASSWORD), certificate=tmp_path / "cert.pem") as simulator:
        given = Eapi(username="monitor", password=PASSWORD, timeout=20.0)
        reader = EapiReader(Target(name="leaf-1", address=simulator.url, eapi=given), given, LONG)
        reason, text = await failed_read(reader)
        await reader.close()
    assert reason == "unreachable"
    assert "fingerprint as sha256" in text
    assert simulator.switch.requests == []


@pytest.mark.parametrize(
    "command", ["configure", "show version; reload", "show version | tee x", "show\nreload", "show "]
)
async def test_only_show_commands_are_sent(command):
    async with EapiSimulator(EapiSwitch(password=PASSWORD)) as simulator:
        client = EapiClient(simulator.url, "monitor", PASSWORD)
        with pytest.raises(ValueError, match="only plain commands that begin with 'show '"):
            await client.show([VERSION, command])
        await client.close()
        assert simulator.switch.requests == []


async def test_results_before_a_failed_command_are_used():
    switch = EapiSwitch(answers={"show a": 1, "show c": 3}, password=PASSWORD)
    switch.faults.errors["show d"] = (1000, "no", ["busy"])
    async with EapiSimulator(switch) as simulator:
        client = EapiClient(simulator.url, "monitor", PASSWORD)
        first, second, third, fourth = await client.show(["show a", "show b", "show c", "show d"])
        await client.close()
    assert (first, third) == (1, 3)
    assert isinstance(second, UnsupportedError)
    assert isinstance(fourth, CommandError)
    assert not isinstance(fourth, UnsupportedError)
    assert switch.requests == [["show a", "show b", "show c", "show d"], ["show c", "show d"]]


# --- values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["interfaces", "interfaceCounters", "Ethernet1", "3", "rxFrames", "queueCounters", "channels"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    for parse in (*POLL_COMMANDS.values(), parser.parse_neighbours, parser.parse_modules):
        with contextlib.suppress(ShapeError):
            parse(data)
    parser.parse_version(data)
    parser.parse_hostname(data)


def test_types_are_the_numbers_of_iftype():
    hardware = ("ethernet", "portChannel", "loopback", "subinterface")
    read = parser.parse_interfaces({"interfaces": {word: {"hardware": word} for word in hardware}})
    assert [port.if_type for port in read.ports.values()] == ["6", "161", "24", "subinterface"]
