"""The configuration of a SONiC switch, with a real redis; keys and fields are those of SONiC's YANG models."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.switch.merge import ReadingMerger
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.readers.sonic_db.reader import RedisReader
from exporter.switch_api.port_settings import EcnThresholds, PortSettings
from exporter.switch_api.sonic_db import configuration
from tests.helpers.redis_server import filled, running_redis
from tests.sources.switch.test_sonic_db import APPLICATION, COUNTERS, rows

CONFIGURATION = {
    "DEVICE_METADATA|localhost": {"hostname": "leaf-s"},
    "PORT|Ethernet0": {"lanes": "1,2,3,4,5,6,7,8", "speed": "400000", "mtu": "9100", "fec": "rs", "autoneg": "off"},
    "PORT|Ethernet4": {"speed": "100000", "fec": "fc"},
    "PORT_QOS_MAP|Ethernet0": {"pfc_enable": "3,4", "dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE"},
    "PFC_WD|Ethernet0": {"action": "drop", "detection_time": "600", "restoration_time": "600"},
    "QUEUE|Ethernet0|0": {"scheduler": "scheduler.0"},
    "QUEUE|Ethernet0|3-4": {"scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS"},
    "QUEUE|Ethernet0|6": {"wred_profile": "[WRED_PROFILE|LOSSY]"},
    "QUEUE|Ethernet4|3": {"wred_profile": "[WRED_PROFILE|AZURE_LOSSLESS]"},
    "WRED_PROFILE|AZURE_LOSSLESS": {
        "ecn": "ecn_all",
        "wred_green_enable": "true",
        "green_min_threshold": "1048576",
        "green_max_threshold": "2097152",
        "green_drop_probability": "5",
        "yellow_min_threshold": "1",
    },
    "WRED_PROFILE|LOSSY": {"ecn": "ecn_none", "green_min_threshold": "100", "green_max_threshold": "200"},
    "BUFFER_POOL|ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": "10443264", "xoff": "4194112"},
    "BUFFER_POOL|egress_lossy_pool": {"type": "egress", "mode": "dynamic"},
}
POOLS_IN_USE = {"BUFFER_POOL_TABLE:egress_lossy_pool": {"size": "9000000"}}
AZURE = {
    "queue_ecn_min_threshold_bytes": 1048576,
    "queue_ecn_max_threshold_bytes": 2097152,
    "queue_ecn_max_probability_ratio": 0.05,
}
SETTINGS = ("mtu_bytes", "configured_speed_bytes_per_second", "settings_info")


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    with running_redis(program("redis-server"), tmp_path_factory.mktemp("redis")) as path:
        yield path


@pytest.fixture
def databases(server):
    with filled(server, {**APPLICATION, **POOLS_IN_USE}, COUNTERS, CONFIGURATION, {}) as clients:
        yield clients


@contextlib.asynccontextmanager
async def reader_of(server, **options):
    given = Redis(address=server, timeout=20.0)
    reader = RedisReader(Target(name="leaf-1", address="192.0.2.1", redis=given, **options), given, 60.0)
    try:
        yield reader
    finally:
        await reader.close()


def settings(found, port):
    return {ending: found[(port,)][ending] for ending in SETTINGS if ending in found[(port,)]}


async def test_configuration_of_ports_queues_and_pools(server, databases):
    async with reader_of(server) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert harvest.failures == []
    assert settings(found, "Ethernet0") == {
        "mtu_bytes": 9100,
        "configured_speed_bytes_per_second": 50e9,
        "settings_info": ("off", "rs", "3,4", "dscp", "drop"),
    }
    assert settings(found, "Ethernet4") == {
        "configured_speed_bytes_per_second": 12.5e9,
        "settings_info": ("", "baser", "none", "none", "off"),
    }
    marking = {key[1:]: {e: row[e] for e in AZURE if e in row} for key, row in found.items() if key[0] == "queue"}
    ports = (("Ethernet0", "3"), ("Ethernet0", "4"), ("Ethernet4", "3"))
    assert {key: row for key, row in marking.items() if row} == dict.fromkeys(ports, AZURE)
    pools = {key: row["buffer_pool_bytes"] for (*_, key), row in found.items() if key.endswith("_pool")}
    assert pools == {"ingress_lossless_pool": 10443264, "egress_lossy_pool": 9000000}


async def test_tables_have_the_labels_of_the_switch(server, databases):
    async with reader_of(server) as reader:
        tables = ReadingMerger().tables("leaf-s", {"redis": await reader.read()})
    keys = {ending: table.rows.keys for table in tables for ending in table.columns}
    assert set(keys["mtu_bytes"]) == {("leaf-s", "Ethernet0"), ("leaf-s", "Ethernet4")}
    assert keys["queue_ecn_min_threshold_bytes"][0] == ("leaf-s", "Ethernet0", "3")
    assert set(keys["buffer_pool_bytes"]) == {("leaf-s", "ingress_lossless_pool"), ("leaf-s", "egress_lossy_pool")}


async def test_configuration_is_read_rarely_and_its_rows_remain(server, databases):
    async with reader_of(server) as reader:
        await reader.read()
        databases[4].hset("PORT|Ethernet0", "mtu", "1500")
        assert rows(await reader.read())[("Ethernet0",)]["mtu_bytes"] == 9100
        reader.invalidate_neighbours("")
        assert rows(await reader.read())[("Ethernet0",)]["mtu_bytes"] == 1500


@pytest.mark.parametrize(
    ("key", "unknown"),
    [
        ("PORT_QOS_MAP|Ethernet0", ("off", "rs", "", "", "drop")),
        ("PFC_WD|Ethernet0", ("off", "rs", "3,4", "dscp", "")),
        ("PORT|Ethernet0", None),
        ("WRED_PROFILE|AZURE_LOSSLESS", ("off", "rs", "3,4", "dscp", "drop")),
        ("QUEUE|Ethernet0|3-4", ("off", "rs", "3,4", "dscp", "drop")),
    ],
)
async def test_a_key_that_cannot_be_read_is_unknown_and_a_failure(server, databases, key, unknown):
    databases[4].delete(key)
    databases[4].set(key, "a string")
    async with reader_of(server) as reader:
        harvest = await reader.read()
    assert [(one.device, one.reason) for one in harvest.failures] == [(key.partition("|")[0], "refused")]
    found = rows(harvest)
    assert found["Ethernet0",].get("settings_info") == unknown
    if "|Ethernet0|" in key or key.startswith("WRED"):
        assert ("queue", "Ethernet0", "4") not in found


async def test_without_access_to_the_configuration_only_that_is_missing(server, databases):
    for key in databases[4].keys("*Ethernet*"):
        databases[4].delete(key)
    async with reader_of(server) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert harvest.failures == []
    assert settings(found, "Ethernet0") == {}
    assert found["Ethernet0",]["link_up"] == 1


PORT = (b"9100", b"400000", b"on", b"rs")
KNOWN = {"mtu": 9100, "speed": 400 * 10**9, "autoneg": True, "fec": "rs"}


@pytest.mark.parametrize(
    ("qos", "global_qos", "pfc", "trust"),
    [
        ((b"3", b"AZURE", None), (None, None, None), (3,), "dscp"),
        ((b"3,4", None, b"AZURE"), (None, None, None), (3, 4), "pcp"),
        ((b"", b"[DSCP_TO_TC_MAP|AZURE]", b"[DOT1P_TO_TC_MAP|AZURE]"), (None, None, None), (), "both"),
        ((None, None, None), (None, b"AZURE", None), (), "dscp"),
        ((None, b"[]", None), (None, None, None), (), "none"),
        ((b"3,8", None, None), (None, None, None), None, "none"),
        ((b"three", None, None), None, None, ""),
        ((b"3", b"AZURE", None), None, (3,), "dscp"),
        (None, (None, b"AZURE", None), None, ""),
    ],
)
def test_priorities_and_trust(qos, global_qos, pfc, trust):
    found = configuration.parse_port(PORT, qos, global_qos, (None, None), {})
    assert found == PortSettings(**KNOWN, pfc=pfc, trust=trust, pfc_watchdog="off")


@pytest.mark.parametrize(
    ("values", "action"),
    [
        ((b"600", b"forward"), "forward"),
        ((b"200", None), "drop"),
        ((None, b"drop"), "off"),
        ((b"0", b"drop"), "off"),
        ((None, None), "off"),
    ],
)
def test_the_watchdog_is_on_with_a_detection_time(values, action):
    assert configuration.parse_port(PORT, (None,) * 3, (None,) * 3, values, {}).pfc_watchdog == action


def profile(**fields):
    return [fields[name].encode() if name in fields else None for name in configuration.PROFILE_FIELDS]


GREEN = {"green_min_threshold": "1000", "green_max_threshold": "2000", "green_drop_probability": "100"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ecn": "ecn_all", **GREEN}, EcnThresholds(1000, 2000, 1.0)),
        ({"ecn": "ecn_green", "green_min_threshold": "0"}, EcnThresholds(0, None, None)),
        ({"ecn": "ecn_all", **GREEN, "ecn_green_min_threshold": "500"}, EcnThresholds(500, None, None)),
        ({"ecn": "ecn_yellow_red", **GREEN, "yellow_max_threshold": "7"}, EcnThresholds(None, 7, None)),
        ({"ecn": "ecn_all", "green_min_threshold": "5%", "green_drop_probability": "101"}, EcnThresholds()),
        ({"ecn": "ecn_none", **GREEN}, None),
        ({"ecn": "on", **GREEN}, None),
        (GREEN, None),
        ({}, None),
    ],
)
def test_thresholds_of_a_profile(fields, expected):
    assert configuration.parse_wred_profile(profile(**fields)) == expected


def test_keys_of_queues():
    ranges = configuration.QUEUE_RANGES
    assert len(ranges) == 36
    assert (ranges["3"], ranges["3-4"], ranges["0-7"]) == (("3",), ("3", "4"), tuple("01234567"))


VALUE = st.none() | st.binary(max_size=40) | st.text("0123456789,[]|", max_size=20).map(str.encode)


@given(st.tuples(*[VALUE] * 4), st.tuples(*[VALUE] * 3), st.tuples(*[VALUE] * 2), VALUE)
def test_arbitrary_values_raise_no_error(port, qos, watchdog, value):
    configuration.parse_port(port, qos, qos, watchdog, {})
    configuration.parse_reference(value)
    configuration.parse_pool_size(value)
    configuration.parse_wred_profile([value] * len(configuration.PROFILE_FIELDS))
