"""Reader of Cisco's NX-API and its object store: results become rows, and failures affect only their own columns.

All data is synthetic, in published structures.
"""

import contextlib

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.source import SourceError
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.options import Nxapi, Target
from exporter.sources.switch.readers import command_reader
from exporter.sources.switch.readers.command_reader import LLDP
from exporter.sources.switch.readers.nxapi.reader import (
    INTERFACES,
    PFC,
    QUEUING,
    VERSION,
    NxapiReader,
)
from exporter.switch_api.errors import ResponseTimeoutError
from exporter.switch_api.nxapi import parser
from exporter.switch_api.nxapi.client import NxapiClient
from exporter.switch_api.port import ShapeError
from tests.simulators.nxapi import NxapiSimulator, NxapiSwitch

PASSWORD = "tr0ub4dor-and-3"
LONG = 60.0


def interface(name, **values):
    return {
        "interface": name,
        "state": "up",
        "admin_state": "up",
        "eth_hw_desc": "100/1000/10000/25000/40000/50000/100000 Ethernet",
        "desc": "to gpu-001",
        "eth_speed": "400 Gb/s",
        "eth_bw": 400000000,
        "eth_mtu": "9216",
        "eth_autoneg": "on",
        "eth_inbytes": str(2**63 + 1),
        "eth_outbytes": 22,
        "eth_inpkts": 3,
        "eth_inerr": 0,
        "eth_crc": "6",
        "eth_inpause": 5,
        "eth_outdiscard": 4,
        **values,
    }


def model():
    pfc = [
        {"if_name_str": "Ethernet1/1", "admin": "Auto", "oper": "On", "rx-stats": "31", "tx-stats": 32},
        {"if_name_str": "Ethernet1/2", "admin": "Auto", "oper": "Off", "rx-stats": 0, "tx-stats": 0},
    ]
    down = {"eth_speed": "auto-speed", "state": "down", "eth_outbytes": "N/A"}
    return NxapiSwitch(
        password=PASSWORD,
        bodies={
            INTERFACES: {
                "TABLE_interface": {
                    "ROW_interface": [
                        interface("Ethernet1/1"),
                        interface("Ethernet1/2", **down),
                        {"interface": "Vlan198", "svi_admin_state": "down"},
                    ]
                }
            },
            PFC: {"TABLE_module": {"ROW_module": {"TABLE_pfc_interface": {"ROW_pfc_interface": pfc}}}},
            VERSION: {
                "host_name": "leaf-n",
                "chassis_id": "Nexus9000 Sim",
                "nxos_ver_str": "10.5(2)",
                "kern_uptm_days": 1,
                "kern_uptm_hrs": 1,
                "kern_uptm_mins": 1,
                "kern_uptm_secs": 1,
            },
            LLDP: {
                "TABLE_nbor_detail": {
                    "ROW_nbor_detail": {
                        "chassis_id": "a088.c200.1008",
                        "port_id": "Ethernet1/9",
                        "l_port_id": "Eth1/1",
                        "port_desc": "to leaf-n",
                        "sys_name": "spine-01",
                        "sys_desc": "NX-OS",
                        "enabled_capability": "B, R",
                        "mgmt_addr": "192.0.2.9",
                        "mgmt_addr_ipv6": "not advertised",
                    }
                }
            },
        },
        objects={
            QUEUING: [
                queue("eth1/1", "c-out-8q-q3", txBytes="1000", randEcnMarkedPackets="70"),
                queue("eth1/1", "c-out-8q-q-default", txBytes="10", randEcnMarkedPackets="1"),
                queue("eth1/1", "c-in-q1", direction="in", txBytes="99", randEcnMarkedPackets="99"),
            ]
        },
    )


def queue(port, name, *, direction="out", **counters):
    dn = f"sys/ipqos/queuing/policy/{direction}/intf-[{port}]/queCmap-[{name}]/queuingStats"
    return {"dn": dn, "cmapName": name, "currQueueDepth": "77", **counters}


@contextlib.asynccontextmanager
async def started(switch=None, given=None, **options):
    switch = switch or model()
    async with NxapiSimulator(switch) as simulator:
        given = given or Nxapi(username="monitor", password=PASSWORD, timeout=20.0)
        reader = NxapiReader(Target(name="leaf-1", address=simulator.url, nxapi=given, **options), given, LONG)
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
    assert {one.value for one, support in harvest.families.items() if support is Support.COUNTED} == {
        "traffic",
        "errors",
        "pause",
        "pfc",
        "ecn",
        "lldp",
    }
    found = rows(harvest)
    assert found["Ethernet1/1",] == {
        "receive_bytes_total": 2**63 + 1,
        "transmit_bytes_total": 22,
        "receive_packets_total": 3,
        "receive_errors_total": 0,
        "receive_pause_frames_total": 5,
        "transmit_discards_total": 4,
        "fcs_errors_total": 6,
        "receive_pfc_all_priorities_frames_total": 31,
        "transmit_pfc_all_priorities_frames_total": 32,
        "ecn_marked_packets_total": 71,
        "link_up": 1,
        "admin_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("leaf-1", "", "to gpu-001", "6", "physical"),
        "mtu_bytes": 9216,
        "settings_info": ("on", "", "", "", ""),
    }
    assert found["Ethernet1/2",]["link_up"] == 0
    assert "transmit_bytes_total" not in found["Ethernet1/2",]
    assert "link_speed_bytes_per_second" not in found["Ethernet1/2",]
    assert ("Vlan198",) not in found
    assert found["queue", "Ethernet1/1", "3"] == {
        "queue_transmit_bytes_total": 1000,
        "queue_ecn_marked_packets_total": 70,
    }
    assert found["queue", "Ethernet1/1", "0"]["queue_ecn_marked_packets_total"] == 1
    assert (harvest.device.name, harvest.device.model, harvest.device.version) == ("leaf-n", "Nexus9000 Sim", "10.5(2)")
    assert harvest.device.uptime == pytest.approx(90061, abs=60)
    (one,) = harvest.neighbours
    assert (one.port, one.chassis, one.peer_port, one.name) == (
        "Eth1/1",
        "a0:88:c2:00:10:08",
        "Ethernet1/9",
        "spine-01",
    )
    assert (one.capabilities, one.addresses) == (frozenset({"bridge", "router"}), ("192.0.2.9",))


async def test_a_table_of_one_row_is_an_object():
    switch = model()
    switch.bodies[INTERFACES]["TABLE_interface"]["ROW_interface"] = interface("Ethernet1/1")
    async with started(switch) as reader:
        assert rows(await reader.read())["Ethernet1/1",]["transmit_bytes_total"] == 22


async def test_a_switch_without_object_store_and_one_command_has_the_other_values(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model()
    switch.faults.no_store = True
    del switch.bodies[PFC]
    async with started(switch) as reader:
        harvest = await reader.read()
        assert harvest.failures == []
        assert harvest.families[Family.ECN] is harvest.families[Family.PFC] is Support.UNSUPPORTED
        assert rows(harvest)["Ethernet1/1",]["transmit_bytes_total"] == 22
        clock.now += 30
        await reader.read()
        assert switch.requests[-1] == [INTERFACES]


async def test_the_object_store_is_read_no_faster_than_it_refreshes_with_one_login(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model()
    async with started(switch) as reader:
        for _ in range(4):
            assert ("queue", "Ethernet1/1", "3") in rows(await reader.read())
            clock.now += 10
        assert switch.queries == [QUEUING] * 2
        assert switch.logins == 1
        switch.expire_tokens()
        clock.now += 20
        assert ("queue", "Ethernet1/1", "3") in rows(await reader.read())
        assert switch.logins == 2
    assert switch.logouts == 1


async def test_an_object_store_that_rejects_logins_affects_only_itself_and_is_retried_later():
    switch = model()
    switch.faults.store_rejects_login = True
    async with started(switch) as reader:
        harvest = await reader.read()
        assert [(one.device, one.reason) for one in harvest.failures] == [(QUEUING, "login")]
        assert "/api/aaaLogin.json: HTTP 401: " in harvest.failures[0].detail
        assert PASSWORD not in harvest.failures[0].detail
        for _ in range(2):
            assert harvest.families[Family.ECN] is Support.FAILED
            assert rows(harvest)["Ethernet1/1",]["transmit_bytes_total"] == 22
            harvest = await reader.read()
            assert harvest.failures == []
    assert switch.refused == 1


async def test_no_response_of_the_object_store_is_no_failed_login():
    async with NxapiSimulator(model()) as simulator:
        client = NxapiClient(simulator.url, "monitor", PASSWORD, timeout=0.05)
        simulator.switch.faults.delay = 30.0
        with pytest.raises(ResponseTimeoutError):
            await client.objects(QUEUING)
        simulator.switch.faults.delay, client._http._timeout = 0.0, 30.0
        assert len(await client.objects(QUEUING)) == 3
        await client.close()


async def test_facts_and_neighbours_are_read_once_a_minute_and_after_a_trap(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model()
    async with started(switch) as reader:
        first = (await reader.read()).device.uptime
        clock.now += 59
        assert (await reader.read()).device.uptime == first + 59
        assert switch.requests[-1] == [INTERFACES, PFC]
        reader.invalidate_neighbours("Ethernet1/1")
        await reader.read()
        assert switch.requests[-1] == [INTERFACES, PFC, VERSION, LLDP]
        clock.now += 60
        await reader.read()
        assert switch.requests[-1] == [INTERFACES, PFC, VERSION, LLDP]


async def test_queues_have_the_time_at_which_the_object_store_was_read(stopped_clock):
    clock = stopped_clock(command_reader)
    async with started() as reader:
        store_read_at = clock.now
        await reader.read()
        clock.now += 10
        harvest = await reader.read()
    times = {next(iter(part.columns)): part.time for part in harvest.parts}
    assert times["queue_transmit_bytes_total"] == times["ecn_marked_packets_total"] == store_read_at
    (ports,) = (part for part in harvest.parts if "receive_bytes_total" in part.columns)
    assert ports.time == clock.now
    assert "ecn_marked_packets_total" not in ports.columns


async def test_an_object_store_that_hangs_does_not_affect_ports_and_is_retried_later(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model()
    switch.faults.store_delay = LONG
    async with started(switch, Nxapi(username="monitor", password=PASSWORD, timeout=1.0)) as reader:
        harvest = await reader.read()
        assert [(one.device, one.reason) for one in harvest.failures] == [(QUEUING, "timeout")]
        assert rows(harvest)["Ethernet1/1",]["transmit_bytes_total"] == 22
        assert harvest.families[Family.ECN] is Support.FAILED
        switch.faults.store_delay = 0.0
        clock.now += 59
        assert (await reader.read()).failures == []
        assert switch.queries == []


async def test_an_object_store_without_read_access_is_not_logged_in_to_at_each_poll(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model()
    switch.faults.no_read_access = True
    async with started(switch) as reader:
        (failure,) = (await reader.read()).failures
        assert (failure.device, failure.reason) == (QUEUING, "login")
        assert "may this user see it?" in failure.detail
        for _ in range(5):
            clock.now += 60
            assert rows(await reader.read())["Ethernet1/1",]["transmit_bytes_total"] == 22
    assert switch.logins == 1, "the backoff uses the client's own clock, which has not moved"


@pytest.mark.parametrize("status", [200, 400, 401])
async def test_a_password_rejected_by_the_object_store_is_sent_once(stopped_clock, status):
    clock = stopped_clock(command_reader)
    async with started() as reader:
        reader.switch.faults.rejection_status = status
        reader.switch.faults.store_rejects_login = True
        (failure,) = (await reader.read()).failures
        assert (failure.device, failure.reason) == (QUEUING, "login")
        for _ in range(5):
            clock.now += 60
            await reader.read()
        assert reader.switch.refused == 1


async def test_one_error_for_all_commands_is_reported():
    switch = model()
    switch.faults.request_error = "Parse error"
    async with started(switch) as reader:
        reason, text = await failed_read(reader)
    assert (reason, "'Parse error'" in text) == ("refused", True)


@pytest.mark.parametrize("command", [PFC, LLDP])
async def test_a_failed_command_affects_only_its_columns(command):
    switch = model()
    switch.faults.errors[command] = "the process is not running"
    async with started(switch) as reader:
        harvest = await reader.read()
    (failure,) = harvest.failures
    assert (failure.device, failure.reason) == (command, "refused")
    assert "the process is not running" in failure.detail
    assert rows(harvest)["Ethernet1/1",]["transmit_bytes_total"] == 22


async def test_a_command_without_output_is_no_failure():
    switch = model()
    switch.bodies[LLDP] = None
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    assert harvest.neighbours == []
    assert harvest.families[Family.LLDP] is Support.NOT_COUNTED


async def test_malformed_values_affect_only_themselves():
    switch = model()
    switch.bodies[INTERFACES]["TABLE_interface"]["ROW_interface"][0]["eth_outbytes"] = "many"
    switch.bodies[PFC] = {"TABLE_module": {}}
    async with started(switch) as reader:
        harvest = await reader.read()
    assert {(one.device, one.reason) for one in harvest.failures} == {(INTERFACES, "malformed"), (PFC, "malformed")}
    assert "transmit_bytes_total" not in rows(harvest)["Ethernet1/1",]
    assert rows(harvest)["Ethernet1/1",]["receive_bytes_total"] == 2**63 + 1


# --- failures of the whole poll


async def failed_read(reader):
    with pytest.raises(SourceError) as caught:
        await reader.read()
    assert PASSWORD not in str(caught.value)
    return caught.value.reason, str(caught.value)


async def test_a_wrong_password_is_sent_once(tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")
    async with started(given=Nxapi(username="monitor", password_file=str(file), timeout=20.0)) as reader:
        reason, text = await failed_read(reader)
        assert reason == "login"
        assert "HTTP 401: 'Unauthorized\\n'; check user and password" in text
        assert (await failed_read(reader))[0] == "login_backoff"
        assert reader.switch.refused == 1
        file.write_text(PASSWORD)
        await failed_read(reader)
        assert rows(await reader.read())


async def test_a_password_changed_on_the_switch_is_sent_once_more_at_most(stopped_clock):
    clock = stopped_clock(command_reader)
    async with started() as reader:
        await reader.read()
        reader.switch.password = "another"
        clock.now += 5
        assert (await failed_read(reader))[0] == "login"
        assert (await failed_read(reader))[0] == "login_backoff"
        assert reader.switch.refused == 1


async def test_an_html_page_instead_of_json():
    async with started() as reader:
        reader.switch.faults.html = True
        reason, text = await failed_read(reader)
        assert reason == "malformed"
        assert "an HTML page instead of a result" in text
        assert "feature nxapi" in text


async def test_a_poll_without_ports_fails():
    switch = model()
    switch.faults.errors[INTERFACES] = "Permission denied for the role"
    async with started(switch) as reader:
        reason, text = await failed_read(reader)
    assert reason == "refused"
    assert "Permission denied for the role" in text


async def test_the_interfaces_command_is_run_at_each_poll_even_if_unsupported():
    switch = model()
    del switch.bodies[INTERFACES]
    async with started(switch) as reader:
        for _ in range(2):
            reason, text = await failed_read(reader)
            assert reason == "refused"
            assert "Invalid command" in text


async def test_an_untrusted_certificate(tmp_path):
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
    async with NxapiSimulator(model(), certificate=tmp_path / "cert.pem") as simulator:
        given = Nxapi(username="monitor", password=PASSWORD, timeout=20.0)
        reader = NxapiReader(Target(name="leaf-1", address=simulator.url, nxapi=given), given, LONG)
        reason, text = await failed_read(reader)
        await reader.close()
    assert reason == "unreachable"
    assert "fingerprint as sha256" in text
    assert simulator.switch.requests == []


@pytest.mark.parametrize("command", ["configure terminal", "show version ; reload", "show version | no-more", "show "])
async def test_only_show_commands_are_sent(command):
    async with NxapiSimulator(model()) as simulator:
        client = NxapiClient(simulator.url, "monitor", PASSWORD)
        with pytest.raises(ValueError, match="only plain commands that begin with 'show '"):
            await client.show([VERSION, command])
        with pytest.raises(ValueError, match="is not requested"):
            await client.objects("aaaUser")
        await client.close()
        assert simulator.switch.requests == []
        assert simulator.switch.logins == 0


# --- values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["TABLE_interface", "ROW_interface", "TABLE_module", "ROW_module", "interface", "eth_inbytes"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_parsed_or_a_shape_error(data):
    for parse in (parser.parse_interfaces, parser.parse_pfc, parser.parse_neighbours):
        with contextlib.suppress(ShapeError):
            parse(data)
    parser.parse_version(data)
    parser.parse_queues([data] if isinstance(data, dict) else [])


def test_types_are_the_numbers_of_iftype():
    names = ("Ethernet1/1", "Ethernet1/1.100", "port-channel3", "mgmt0", "Vlan1")
    read = parser.parse_interfaces({"TABLE_interface": {"ROW_interface": [interface(name) for name in names]}})
    assert {name: port.if_type for name, port in read.ports.items()} == {
        "Ethernet1/1": "6",
        "Ethernet1/1.100": "subinterface",  # not a physical port
        "port-channel3": "161",
        "mgmt0": "6",
    }
