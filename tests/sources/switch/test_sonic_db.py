"""Reader and parsers of SONiC's databases, with a real redis."""

import asyncio
import contextlib
import os
import signal
import ssl
from math import inf

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.source import SourceError
from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.readers.sonic_db.reader import RedisReader
from exporter.switch_api.sonic_db import parser
from tests.helpers.redis_server import fill, filled, running_redis

LONG = 60.0
OIDS = {"Ethernet0": "oid:0x1000000000002", "Ethernet4": "oid:0x1000000000003"}
# A synthetic switch in the layout of SONiC: two ports with two queues and a priority group each; the second port has
# no counters yet, as after a restart.
APPLICATION = {
    "PORT_TABLE:Ethernet0": {
        "oper_status": "up",
        "admin_status": "up",
        "speed": "400000",
        "alias": "etp1",
        "description": "to gpu-001",
    },
    "PORT_TABLE:Ethernet4": {"oper_status": "down", "admin_status": "up", "speed": "400000", "alias": "etp2"},
    "LLDP_ENTRY_TABLE:Ethernet0": {
        "lldp_rem_chassis_id": "A0:88:C2:00:10:08",
        "lldp_rem_port_id": "a0-88-c2-00-10-08",
        "lldp_rem_sys_name": "gpu-001",
        "lldp_rem_port_desc": "eth2",
        "lldp_rem_sys_cap_enabled": "01 00",
        "lldp_rem_man_addr": "192.0.2.7,2001:db8::7",
    },
    "LLDP_LOC_CHASSIS": {
        "lldp_loc_chassis_id": "A0:88:C2:AA:00:01",
        "lldp_loc_sys_desc": "SONiC Software Version: SONiC.1",
    },
}
COUNTERS = {
    "COUNTERS_PORT_NAME_MAP": OIDS,
    "COUNTERS_QUEUE_NAME_MAP": {
        "Ethernet0:0": "oid:0x15000000000010",
        "Ethernet0:3": "oid:0x15000000000013",
        "Ethernet4:3": "oid:0x15000000000023",
    },
    "COUNTERS_PG_NAME_MAP": {"Ethernet0:3": "oid:0x1a000000000033"},
    "COUNTERS:oid:0x1000000000002": {
        "SAI_PORT_STAT_IF_IN_OCTETS": str(2**63 + 11),
        "SAI_PORT_STAT_IF_OUT_OCTETS": "22",
        "SAI_PORT_STAT_IF_IN_UCAST_PKTS": "3",
        "SAI_PORT_STAT_IF_IN_MULTICAST_PKTS": "4",
        "SAI_PORT_STAT_IF_IN_BROADCAST_PKTS": "5",
        "SAI_PORT_STAT_IF_IN_ERRORS": "0",
        "SAI_PORT_STAT_IF_OUT_DISCARDS": "N/A",
        "SAI_PORT_STAT_ETHER_STATS_CRC_ALIGN_ERRORS": "6",
        "SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES": "800",
        "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES": "8",
        "SAI_PORT_STAT_IF_IN_FEC_SYMBOL_ERRORS": "9000",
        "SAI_PORT_STAT_PFC_3_RX_PKTS": "31",
        "SAI_PORT_STAT_PFC_3_TX_PKTS": "32",
        "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": "2500000",
        "SAI_PORT_STAT_PFC_4_RX_PAUSE_DURATION": "99",
        "EST_PORT_STAT_PFC_5_RX_PAUSE_DURATION_US": "99",
    },
    "COUNTERS:oid:0x15000000000010": {"SAI_QUEUE_STAT_PACKETS": "100", "SAI_QUEUE_STAT_DROPPED_PACKETS": "1"},
    "COUNTERS:oid:0x15000000000013": {
        "SAI_QUEUE_STAT_PACKETS": "200",
        "SAI_QUEUE_STAT_DROPPED_PACKETS": "2",
        "SAI_QUEUE_STAT_WRED_DROPPED_PACKETS": "7",
        "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "70",
        "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "1",
    },
    "COUNTERS:oid:0x1a000000000033": {"SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "9"},
    "PERIODIC_WATERMARKS:oid:0x15000000000013": {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "4096"},
    "PERIODIC_WATERMARKS:oid:0x1a000000000033": {
        "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "512",
        "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "128",
    },
}
CONFIGURATION = {
    "DEVICE_METADATA|localhost": {"hostname": "leaf-s", "hwsku": "Sim-64x400"},
    "FLEX_COUNTER_TABLE|PORT": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": "1000"},
    "FLEX_COUNTER_TABLE|QUEUE": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": "5000"},
    "FLEX_COUNTER_TABLE|PG_DROP": {"FLEX_COUNTER_STATUS": "disable", "POLL_INTERVAL": "30000"},
}
STATE = {
    "TRANSCEIVER_DOM_SENSOR|Ethernet0": {
        "temperature": "41.5",
        "voltage": "3.31",
        "rx1power": "0.0",
        "tx1power": "-3.0103dBm",
        "tx1bias": "7.5",
        "rx2power": "-inf",
        "tx2power": "N/A",
    },
    "TRANSCEIVER_DOM_SENSOR|Ethernet4": {"temperature": "0.0000", "voltage": "0.0000", "rx1power": "-inf"},
}


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    with running_redis(program("redis-server"), tmp_path_factory.mktemp("redis")) as path:
        yield path


@pytest.fixture
def databases(server):
    with filled(server, APPLICATION, COUNTERS, CONFIGURATION, STATE) as clients:
        yield clients


@contextlib.asynccontextmanager
async def reader_of(server, *, given=None, **options):
    given = given or Redis(address=server, timeout=20.0)
    reader = RedisReader(Target(name="leaf-1", address="192.0.2.1", redis=given, **options), given, LONG)
    try:
        yield reader
    finally:
        await reader.close()


def rows(harvest):
    """Return the rows by their labels and the ending; counters as they are exported."""
    found = {}
    for part in harvest.parts:
        for ending, column in part.columns.items():
            for key, value in zip(part.keys, column.values, strict=True):
                if value is not None:
                    scale = column.factor / column.divisor
                    found.setdefault((part.schema.labels[1:], key), {})[ending] = value if scale == 1 else value * scale
    return {(*labels[1:], *key): row for (labels, key), row in found.items()}


async def test_database_values_become_rows(server, databases):
    async with reader_of(server) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert harvest.failures == []
    assert (harvest.device.name, harvest.device.model) == ("leaf-s", "Sim-64x400")
    assert harvest.device.description == "SONiC Software Version: SONiC.1"
    assert harvest.device.chassis == "a0:88:c2:aa:00:01"
    assert harvest.device.refresh == 5.0  # the longest of the enabled groups
    assert found["Ethernet0",] == {
        "receive_bytes_total": 2**63 + 11,
        "transmit_bytes_total": 22,
        "receive_unicast_packets_total": 3,
        "receive_multicast_packets_total": 4,
        "receive_broadcast_packets_total": 5,
        "receive_packets_total": 12,
        "receive_errors_total": 0,
        "fcs_errors_total": 6,
        "fec_corrected_blocks_total": 800,
        "fec_uncorrectable_blocks_total": 8,
        "link_up": 1,
        "admin_up": 1,
        "link_speed_bytes_per_second": 50e9,
        "info": ("leaf-1", "", "to gpu-001", "", "physical"),
        "ecn_marked_packets_total": 70,
        "congestion_discards_total": 10,
    }
    assert found["Ethernet4",] == {"link_up": 0, "admin_up": 1, "info": ("leaf-1", "", "etp2", "", "physical")}
    assert found["priority", "Ethernet0", "3"] == {
        "receive_pfc_frames_total": 31,
        "transmit_pfc_frames_total": 32,
        "receive_pfc_paused_seconds_total": 2.5,
    }
    assert ("priority", "Ethernet0", "4") not in found  # a duration of unknown unit
    assert ("priority", "Ethernet0", "5") not in found  # an estimate
    assert found["queue", "Ethernet0", "3"] == {
        "queue_transmit_packets_total": 200,
        "queue_full_discards_total": 2,
        "queue_early_discards_total": 7,
        "queue_ecn_marked_packets_total": 70,
        "queue_pfc_deadlocks_total": 1,
        "queue_highest_depth_bytes": 4096,
    }
    assert found["queue", "Ethernet0", "0"] == {"queue_transmit_packets_total": 100, "queue_full_discards_total": 1}
    assert found["priority_group", "Ethernet0", "3"] == {
        "priority_group_discards_total": 9,
        "priority_group_highest_depth_bytes": 512,
        "priority_group_highest_headroom_bytes": 128,
    }


async def test_lldp_neighbours(server, databases):
    async with reader_of(server) as reader:
        (one,) = (await reader.read()).neighbours
    assert (one.port, one.chassis, one.peer_port) == ("Ethernet0", "a0:88:c2:00:10:08", "a0:88:c2:00:10:08")
    assert (one.name, one.port_description, one.capabilities) == ("gpu-001", "eth2", frozenset({"station"}))
    assert one.addresses == ("192.0.2.7", "2001:db8::7")


async def test_modules_are_read_with_optics(server, databases):
    async with reader_of(server, optics=True) as reader:
        found = rows(await reader.read())
    assert found["lane", "Ethernet0", "1"] == {
        "module_lane_receive_power_watts": 0.001,
        "module_lane_transmit_power_watts": pytest.approx(0.0005, rel=1e-4),
        "module_lane_bias_amperes": 0.0075,
    }
    assert found["lane", "Ethernet0", "2"] == {"module_lane_receive_power_watts": 0.0}
    assert found["Ethernet0",]["module_temperature_celsius"] == 41.5
    assert "module_voltage_volts" not in found["Ethernet4",]


async def test_which_families_are_counted(server, databases):
    """Without values a family is disabled, or the chip does not support it: only the configuration shows which."""
    group = "FLEX_COUNTER_TABLE|WRED_ECN_QUEUE"
    async with reader_of(server) as reader:
        families = (await reader.read()).families
        assert families[Family.ECN] is families[Family.PFC_DURATION] is families[Family.LLDP] is Support.COUNTED
        assert families[Family.PAUSE] is Support.UNSUPPORTED
        databases[2].hdel("COUNTERS:oid:0x15000000000013", "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS")
        harvest = await reader.read()
        assert harvest.families[Family.ECN] is Support.NOT_COUNTED
        assert "ecn_marked_packets_total" not in rows(harvest)["Ethernet0",]
        for status, support in (("enable", Support.UNSUPPORTED), ("disable", Support.NOT_COUNTED)):
            databases[4].hset(group, "FLEX_COUNTER_STATUS", status)
            reader.invalidate_neighbours("")
            assert (await reader.read()).families[Family.ECN] is support


async def test_watermarks_alone_make_a_family_counted(server, databases):
    databases[2].delete("COUNTERS:oid:0x1a000000000033")
    async with reader_of(server) as reader:
        assert (await reader.read()).families[Family.BUFFERS] is Support.COUNTED
        databases[2].delete("PERIODIC_WATERMARKS:oid:0x1a000000000033")
        reader.invalidate_neighbours("")
        assert (await reader.read()).families[Family.BUFFERS] is Support.NOT_COUNTED


async def test_a_queue_without_counters_makes_the_sum_absent(server, databases):
    """Else the sum of the port would decrease, which looks like a reset."""
    async with reader_of(server) as reader:
        assert rows(await reader.read())["Ethernet0",]["congestion_discards_total"] == 10
        databases[2].delete("COUNTERS:oid:0x15000000000010")
        assert "congestion_discards_total" not in rows(await reader.read())["Ethernet0",]


async def test_name_maps_are_not_read_at_each_poll(server, databases):
    async with reader_of(server) as reader:
        await reader.read()
        databases[2].hset("COUNTERS:oid:0x1000000000002", "SAI_PORT_STAT_IF_OUT_OCTETS", "23")
        databases[2].hset("COUNTERS_PORT_NAME_MAP", "Ethernet8", "oid:0x1000000000009")
        found = rows(await reader.read())
        assert found["Ethernet0",]["transmit_bytes_total"] == 23
        assert ("Ethernet8",) not in found
        reader.invalidate_neighbours("")
        databases[0].hset("PORT_TABLE:Ethernet8", "oper_status", "up")
        assert rows(await reader.read())["Ethernet8",]["link_up"] == 1


async def test_a_restarted_switch_has_other_object_identifiers(server, databases):
    async with reader_of(server) as reader:
        await reader.read()
        databases[2].rename("COUNTERS:oid:0x1000000000002", "COUNTERS:oid:0x1000000000f02")
        databases[2].hset("COUNTERS_PORT_NAME_MAP", "Ethernet0", "oid:0x1000000000f02")
        harvest = await reader.read()
        assert rows(harvest)["Ethernet0",]["link_up"] == 1
        assert harvest.families[Family.TRAFFIC] is Support.NOT_COUNTED
        assert rows(await reader.read())["Ethernet0",]["transmit_bytes_total"] == 22


@pytest.mark.parametrize(
    ("operational", "speed"),
    [("100000", 12.5e9), ("0", 50e9), ("N/A", 50e9), (None, 50e9)],
    ids=["below", "unknown", "placeholder", "absent"],
)
async def test_the_operational_speed_takes_precedence_over_the_configured_one(server, databases, operational, speed):
    """APPL_DB has the configured speed, 400G here; STATE_DB has that of the link, 0 while it is unknown."""
    if operational is not None:
        databases[6].hset("PORT_TABLE|Ethernet0", "speed", operational)
    async with reader_of(server) as reader:
        assert rows(await reader.read())["Ethernet0",]["link_speed_bytes_per_second"] == speed


async def test_only_selected_ports(server, databases):
    async with reader_of(server, exclude=("Ethernet0",)) as reader:
        assert {key[0] for key in rows(await reader.read())} == {"Ethernet4", "queue"} - {"queue"}


async def test_malformed_values_affect_only_themselves(server, databases):
    databases[2].hset("COUNTERS_QUEUE_NAME_MAP", "no queue at all", "oid:0x1")
    databases[2].hset("COUNTERS:oid:0x1000000000002", "SAI_PORT_STAT_IF_OUT_OCTETS", "-5")
    databases[2].hset("COUNTERS:oid:0x1000000000002", "SAI_PORT_STAT_IF_IN_ERRORS", str(2**64))
    async with reader_of(server) as reader:
        harvest = await reader.read()
    assert sorted((one.device, one.reason) for one in harvest.failures) == [
        ("COUNTERS_QUEUE_NAME_MAP", "malformed"),
        ("Ethernet0", "malformed"),
        ("Ethernet0", "malformed"),
    ]
    row = rows(harvest)["Ethernet0",]
    assert "transmit_bytes_total" not in row
    assert "receive_errors_total" not in row
    assert row["receive_bytes_total"] == 2**63 + 11


@pytest.mark.parametrize(
    ("number", "key", "missing"),
    [
        (0, "LLDP_ENTRY_TABLE:Ethernet0", None),
        (0, "PORT_TABLE:Ethernet0", "link_up"),
        (2, "COUNTERS_QUEUE_NAME_MAP", "ecn_marked_packets_total"),
        (2, "COUNTERS:oid:0x1000000000002", "receive_bytes_total"),
        (4, "DEVICE_METADATA|localhost", None),
        (6, "PORT_TABLE|Ethernet0", None),
    ],
)
async def test_a_key_of_another_type_affects_only_itself(server, databases, number, key, missing):
    databases[number].delete(key)
    databases[number].set(key, "a string")
    async with reader_of(server) as reader:
        harvest = await reader.read()
    (failure,) = harvest.failures
    assert (failure.device, failure.reason) == (key, "refused")
    assert failure.detail.startswith(f"{key}: WRONGTYPE")
    row = rows(harvest)["Ethernet0",]
    assert {"link_up", "ecn_marked_packets_total", "receive_bytes_total"} - row.keys() == (
        {missing} if missing else set()
    )


async def test_a_poll_without_port_names_fails(server, databases):
    databases[2].delete("COUNTERS_PORT_NAME_MAP")
    databases[2].set("COUNTERS_PORT_NAME_MAP", "a string")
    async with reader_of(server) as reader:
        error = await failed_read(reader)
    assert error.reason == "refused"
    assert "WRONGTYPE" in str(error)


async def test_failures_of_a_poll_are_bounded(server, databases):
    wrong = {f"no queue {number}": "nowhere" for number in range(300)}
    databases[2].hset("COUNTERS_QUEUE_NAME_MAP", mapping=wrong)
    for number in range(300):
        oid = f"oid:0x15000000001{number:03x}"
        databases[2].hset("COUNTERS_QUEUE_NAME_MAP", f"Ethernet0:{number + 10}", oid)
        databases[2].hset(f"COUNTERS:{oid}", "SAI_QUEUE_STAT_PACKETS", "many")
    async with reader_of(server) as reader:
        harvest = await reader.read()
    assert len(harvest.failures) == 100
    assert rows(harvest)["queue", "Ethernet0", "3"]["queue_transmit_packets_total"] == 200


async def test_a_name_map_that_is_too_large_is_not_read(server, databases, monkeypatch):
    monkeypatch.setattr("exporter.sources.switch.readers.sonic_db.reader.MAX_NAMES", 2)
    async with reader_of(server) as reader:
        harvest = await reader.read()
    (failure,) = harvest.failures
    assert failure.device == "COUNTERS_QUEUE_NAME_MAP"
    assert "has 3 entries" in failure.detail
    assert ("Ethernet0",) in rows(harvest)


# --- failures of the whole poll


async def failed_read(reader):
    with pytest.raises(SourceError) as caught:
        await reader.read()
    return caught.value


async def test_a_database_other_than_sonics(server, databases):
    databases[2].flushall()
    async with reader_of(server) as reader:
        error = await failed_read(reader)
        assert error.reason == "empty"
        assert "COUNTERS_PORT_NAME_MAP has no port" in str(error)
        for number, hashes in ((0, APPLICATION), (2, COUNTERS)):
            fill(databases[number], hashes)
        assert rows(await reader.read())["Ethernet0",]["link_up"] == 1


async def test_no_database(tmp_path):
    async with reader_of(str(tmp_path / "none")) as reader:
        assert (await failed_read(reader)).reason == "unreachable"


@pytest.mark.parametrize("password", [None, "wrong"])
async def test_a_missing_or_wrong_password(server, databases, password):
    databases[0].config_set("requirepass", "hush-hush")
    try:
        given = Redis(address=server, password=password, timeout=20.0)
        async with reader_of(server, given=given) as reader:
            databases[0].config_resetstat()
            error = await failed_read(reader)
            stats = databases[0].info("commandstats")
        assert "cmdstat_hello" not in stats  # which an old redis does not support
        attempts = stats.get("cmdstat_auth", {"calls": 0})["calls"]
        assert error.reason == "login"
        assert attempts == 0 if password is None else 1 <= attempts <= 2
        assert "check user and password" in str(error)
        assert "hush" not in str(error)
        given = Redis(address=server, password="hush-hush", timeout=20.0)
        async with reader_of(server, given=given) as reader:
            assert (await reader.read()).failures == []
    finally:
        databases[0].config_set("requirepass", "")


async def test_only_reading_commands_are_sent(server, databases):
    def calls():
        return {name.removeprefix("cmdstat_") for name in databases[0].info("commandstats")}

    databases[0].config_resetstat()
    async with reader_of(server, optics=True) as reader:
        await reader.read()
        await reader.read()
        used = {name.partition("|")[0] for name in calls()}
    assert used <= {"hgetall", "hmget", "hlen", "select", "client", "hello", "info", "config"}
    assert {"hgetall", "hmget"} <= used


async def test_read_access_is_sufficient(server, databases):
    rights = ["+hget", "+hmget", "+hgetall", "+hlen", "+select"]
    databases[0].acl_setuser("reader", enabled=True, passwords=["+seen"], keys=["*"], commands=rights)
    given = Redis(address=server, username="reader", password="seen", timeout=20.0)
    try:
        async with reader_of(server, given=given, optics=True) as reader:
            harvest = await reader.read()
            assert harvest.failures == []
            assert rows(harvest)["Ethernet0",]["module_temperature_celsius"] == 41.5
            databases[0].acl_setuser("reader", reset_keys=True, keys=["COUNTERS*", "PORT_TABLE*", "[DFTP]*"])
            reader.invalidate_neighbours("")
            harvest = await reader.read()
        assert {one.device.partition(":")[0] for one in harvest.failures} == {
            *("LLDP_ENTRY_TABLE", "LLDP_LOC_CHASSIS"),
            *("QUEUE", "BUFFER_POOL", "BUFFER_POOL_TABLE"),
        }
        assert rows(harvest)["Ethernet0",]["receive_bytes_total"] == 2**63 + 11
    finally:
        databases[0].acl_deluser("reader")


async def test_an_idle_connection_closed_by_the_server_is_reopened(server, databases):
    async with reader_of(server) as reader:
        await reader.read()
        databases[0].client_kill_filter(_type="normal", skipme=True)
        assert rows(await reader.read())["Ethernet0",]["link_up"] == 1


async def test_a_cancelled_poll_leaves_no_responses_for_the_next(server, databases):
    async with reader_of(server) as reader:
        before = rows(await reader.read())
        process = databases[0].info("server")["process_id"]
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.read()
        finally:
            os.kill(process, signal.SIGCONT)
        for _ in range(3):
            assert rows(await reader.read()) == before


async def test_a_server_that_closes_the_connection_is_tried_twice():
    calls = []

    def hang_up(_, writer):
        calls.append("")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    given = Redis(address=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=20.0)
    async with reader_of("", given=given) as reader:
        assert (await failed_read(reader)).reason == "unreachable"
    server.close()
    assert 1 <= len(calls) <= 3


@contextlib.asynccontextmanager
async def fixed_response_server(response, tls=None):
    """Run a server with the same response to every request; yield its port and the requests."""
    sent, serving = [], []

    async def serve(reader, writer):
        serving.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                sent.append(data)
                writer.write(response * data.count(b"\r\n*") + response)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], sent
    finally:
        server.close()
        await asyncio.gather(*serving)  # the client has closed its ends


async def test_a_database_that_is_loading():
    async with fixed_response_server(b"-LOADING Redis is loading the dataset in memory\r\n") as (port, _):
        given = Redis(address=f"127.0.0.1:{port}", timeout=20.0)
        async with reader_of("", given=given) as reader:
            error = await failed_read(reader)
    assert error.reason == "refused"
    assert "loading its data set" in str(error)


async def test_a_database_that_never_responds():
    async with fixed_response_server(b"") as (port, _):
        given = Redis(address=f"127.0.0.1:{port}", timeout=0.2)
        async with reader_of("", given=given) as reader:
            assert (await failed_read(reader)).reason == "timeout"


async def test_a_server_other_than_redis():
    async with fixed_response_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (port, _):
        given = Redis(address=f"127.0.0.1:{port}", timeout=20.0)
        async with reader_of("", given=given) as reader:
            assert (await failed_read(reader)).reason == "unreachable"


@pytest.mark.parametrize("name", ["another.example", None], ids=["name", "authority"])
async def test_no_password_is_sent_with_an_invalid_certificate(tmp_path, name):
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name or "127.0.0.1").configure_cert(tls)
    (trustme.CA() if name is None else authority).cert_pem.write_to_path(tmp_path / "ca.pem")
    async with fixed_response_server(b"+OK\r\n", tls) as (port, sent):
        given = Redis(address=f"127.0.0.1:{port}", tls=True, ca_file=str(tmp_path / "ca.pem"), password="hush-hush")
        async with reader_of("", given=given) as reader:
            error = await failed_read(reader)
    assert error.reason == "unreachable"
    assert "certificate" in str(error).lower()
    assert sent == []


# --- values


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.612", 0.612),
        ("-2.5dBm", -2.5),
        (" 3.3 Volts ", 3.3),
        ("-inf", -inf),
        ("N/A", None),
        ("", None),
        ("1e5", None),
    ],
)
def test_measurements(text, number):
    assert parser.parse_measurement(text) == number


@pytest.mark.parametrize(
    ("text", "words"),
    [("28 00", {"bridge", "router"}), ("01 00", {"station"}), ("", set()), ("zz", set()), ("2", set())],
)
def test_capabilities(text, words):
    assert parser.parse_capabilities(text) == words


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=40), max_size=5))
def test_any_hash_is_parsed_without_an_error(entry):
    parser.parse_port_names(entry)
    parser.parse_numbered_names(entry)
    parser.parse_counters(entry.values(), ["x"] * len(entry))


@given(st.lists(st.none() | st.binary(max_size=40), min_size=26, max_size=26))
def test_any_values_are_parsed_without_an_error(values):
    parser.parse_dom_sensor(values)
    parser.parse_port_table(values[:5])
    parser.parse_neighbour("Ethernet0", values[:7])
    parser.parse_flex_counter_group(values[:2], 1.0)


@pytest.mark.parametrize(
    ("values", "group"),
    [
        ([b"enable", b"2500"], (True, 2.5)),
        ([b"disable", None], (False, 10.0)),
        ([None, b"0"], (None, 10.0)),
        ([b"perhaps", b"-5"], (None, 10.0)),
    ],
)
def test_flex_counter_groups(values, group):
    parsed = parser.parse_flex_counter_group(values, 10.0)
    assert (parsed.enabled, parsed.interval_seconds) == group
