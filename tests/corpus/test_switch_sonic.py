"""Dumps of SONiC's databases: own ones, and those of SONiC's tests and of other exporters, read from a real redis.

Expected values were read off the files.
"""

import json

import pytest
import redis

from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.readers.sonic_db.reader import RedisReader
from tests.helpers.recordings import recording_path
from tests.helpers.redis_server import DATABASES, fill, hashes_of, running_redis

LONG = 60.0
OWN = {name: f"own/sonic/{name}_db.json" for name in DATABASES}
PREMDAY = {name: f"corpus/sonic/premday_sonic-exporter/{name}_db_data.json" for name in DATABASES}
VINTED = {name: f"corpus/sonic/vinted_sonic-exporter/{name}_db_data.json" for name in ("counters", "config", "state")}
UTILITIES = "corpus/sonic/utilities/"


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    with running_redis(program("redis-server"), tmp_path_factory.mktemp("redis")) as path:
        yield path


@pytest.fixture
def read_switch(request, server):
    """Return a function that writes dumps, by the name of the database, and further hashes, and polls the switch."""

    async def read(dumps, hashes=None):
        for database, number in DATABASES.items():
            with redis.Redis(unix_socket_path=server, db=number) as client:
                client.flushdb()
                if database in dumps:
                    fill(client, hashes_of(recording_path(request, dumps[database])))
                fill(client, (hashes or {}).get(database, {}))
        options = Redis(address=server, timeout=20.0)
        reader = RedisReader(Target(name="leaf-1", address="192.0.2.1", redis=options, optics=True), options, LONG)
        try:
            return await reader.read()
        finally:
            await reader.close()

    return read


def cell(harvest, ending, *key):
    """Return a raw value; None where there is none."""
    for part in harvest.parts:
        if ending in part.columns and key in part.keys:
            return part.columns[ending].values[part.keys.index(key)]
    return None


def keys(harvest, *labels):
    """Return the keys of the rows with these labels behind that of the port."""
    return next((part.keys for part in harvest.parts if part.schema.labels[2:] == labels), [])


@pytest.mark.parametrize(
    ("dumps", "hashes", "device", "neighbour", "received"),
    [
        (OWN, {}, ("leaf-01", "Sim-64x400", "02:00:00:00:00:aa"),
         ("Ethernet0", "02:00:00:00:0a:01", "eth2", "gpu-001", ("192.0.2.11",)), 9000000000001),
        (PREMDAY, {"counters": {"COUNTERS_PORT_NAME_MAP": {"Ethernet88": "oid:0x1000000000006"}}},
         ("switch01.example.net", "Example-SKU-48X", "74:86:e2:a4:6c:a5"),
         ("Ethernet88", "74:86:e2:6d:df:a5", "hundredGigE1/23", "net-tor-lab001.lau1", ("192.168.240.123",)), 123),
    ],
    ids=["own", "premday"],
)  # fmt: skip
async def test_a_switch_in_four_databases(read_switch, dumps, hashes, device, neighbour, received):
    """An LLDP entry of `eth0`, or one with an index only, is no neighbour."""
    harvest = await read_switch(dumps, hashes)
    assert (harvest.device.name, harvest.device.model, harvest.device.chassis) == device
    (one,) = harvest.neighbours
    assert (one.port, one.chassis, one.peer_port, one.name, one.addresses) == neighbour
    assert cell(harvest, "receive_bytes_total", "Ethernet0") == received
    assert harvest.families[Family.TRAFFIC] is Support.COUNTED


async def test_ecn_marks_that_are_not_counted(read_switch):
    assert (await read_switch(PREMDAY)).families[Family.ECN] is Support.NOT_COUNTED


@pytest.mark.parametrize(
    ("dumps", "temperature", "voltage", "watts"),
    [(OWN, 41.5, 3.25, 0.6309573e-3), (VINTED, 25.639, 3.436, 1.151330e-3)],
    ids=["own", "vinted"],
)
async def test_modules_with_sensors(read_switch, dumps, temperature, voltage, watts):
    harvest = await read_switch(dumps)
    assert cell(harvest, "module_temperature_celsius", "Ethernet0") == temperature
    assert cell(harvest, "module_voltage_volts", "Ethernet0") == voltage
    assert cell(harvest, "module_lane_receive_power_watts", "Ethernet0", "1") == pytest.approx(watts, rel=1e-6)
    assert cell(harvest, "module_lane_receive_power_watts", "Ethernet0", "2") is None


@pytest.mark.parametrize(
    "dumps",
    [
        {"counters": OWN["counters"], "state": "own/sonic/state_db_without_sensors.json"},
        {"counters": f"{UTILITIES}t1_counter_db.json", "state": f"{UTILITIES}t1_state_db.json"},
    ],
    ids=["own", "utilities"],
)
async def test_modules_without_sensors(read_switch, dumps):
    """All entries have 0 volts."""
    harvest = await read_switch(dumps)
    assert harvest.parts
    assert harvest.families[Family.OPTICS] is Support.NOT_COUNTED
    assert not any("module_temperature_celsius" in part.columns for part in harvest.parts)


# Dump of counters: ports, queues, then one port with counters, and the PFC counters of its priority 3.
DUMPS = {
    OWN["counters"]: (2, 1, "Ethernet0", {"transmit_bytes_total": 8000000000002}, (17, 18, 2500000)),
    f"{UTILITIES}t1_counter_db.json": (34, 680, "Ethernet12", {"receive_bytes_total": 4335264}, (0, 0, None)),
    f"{UTILITIES}counters_db.json": (
        3,
        60,  # of 90 names; the others have no counters
        "Ethernet4",
        {"receive_bytes_total": 400, "transmit_bytes_total": 4000},
        (403, 413, None),  # its durations are estimates by software
    ),
    PREMDAY["counters"]: (4, None, "Ethernet0", {}, (None, None, None)),
    VINTED["counters"]: (4, None, "Ethernet0", {}, (None, None, None)),
}


@pytest.mark.parametrize("name", DUMPS)
async def test_dumps_of_counters(read_switch, name):
    ports, queues, port, counters, (received, transmitted, paused) = DUMPS[name]
    harvest = await read_switch({"counters": name})
    assert len(keys(harvest)) == ports
    with_values = {
        key
        for part in harvest.parts
        if part.schema.labels[2:] == ("queue",)
        for index, key in enumerate(part.keys)
        if any(column.values[index] is not None for column in part.columns.values())
    }
    assert queues is None or len(with_values) == queues
    assert {ending: cell(harvest, ending, port) for ending in counters} == counters
    assert cell(harvest, "receive_pfc_frames_total", port, "3") == received
    assert cell(harvest, "transmit_pfc_frames_total", port, "3") == transmitted
    assert cell(harvest, "receive_pfc_paused_seconds_total", port, "3") == paused, "in microseconds"


async def test_queues_and_priority_groups(read_switch):
    harvest = await read_switch(OWN)
    assert harvest.failures == []
    assert (keys(harvest, "queue"), keys(harvest, "priority_group")) == ([("Ethernet0", "3")], [("Ethernet0", "3")])
    assert cell(harvest, "queue_pfc_deadlocks_total", "Ethernet0", "3") == 0
    assert cell(harvest, "queue_depth_bytes", "Ethernet0", "3") == 512
    assert cell(harvest, "queue_highest_depth_bytes", "Ethernet0", "3") == 4096
    assert cell(harvest, "priority_group_highest_headroom_bytes", "Ethernet0", "3") == 128


async def test_the_tables_of_a_switch_of_55_ports(read_switch, corpus):
    """Name maps, and counters of a port, of its queues and of priority groups, from separate files."""
    gnmi = corpus / "switch" / "sonic" / "gnmi"
    maps = ("COUNTERS_PORT_NAME_MAP", "COUNTERS_QUEUE_NAME_MAP", "COUNTERS_PG_NAME_MAP")
    hashes = {name: json.loads((gnmi / f"{name}.txt").read_text()) for name in maps}
    queue_oids, group_oids = hashes["COUNTERS_QUEUE_NAME_MAP"], hashes["COUNTERS_PG_NAME_MAP"]
    port = hashes["COUNTERS_PORT_NAME_MAP"]["Ethernet68"]
    for queue, values in json.loads((gnmi / "COUNTERS_Ethernet68_Pfcwd.txt").read_text()).items():
        hashes[f"COUNTERS:{queue_oids[queue]}"] = values
    watermarks = json.loads((gnmi / "PERIODIC_WATERMARKS_Ethernet16_PriorityGroups.txt").read_text())
    for group, values in watermarks.items():
        if values:
            hashes[f"PERIODIC_WATERMARKS:{group_oids[group]}"] = values
    text = (gnmi / "COUNTERS_Ethernet68.txt").read_text().replace('"2",\n}', '"2"\n}')  # it has a trailing comma
    hashes[f"COUNTERS:{port}"] = json.loads(text)
    oid = "oid:0x1500000000091c"
    queue_watermarks = (gnmi / "PERIODIC_WATERMARKS_oid_0x1500000000091c.txt").read_text()
    hashes[f"PERIODIC_WATERMARKS:{oid}"] = json.loads(queue_watermarks)
    harvest = await read_switch({}, {"counters": hashes})
    assert harvest.failures == []
    assert [len(keys(harvest, *labels)) for labels in ((), ("queue",), ("priority_group",))] == [55, 1080, 432]
    assert cell(harvest, "receive_pfc_frames_total", "Ethernet68", "7") == 2
    assert cell(harvest, "receive_pfc_frames_total", "Ethernet68", "6") == 0
    assert cell(harvest, "fcs_errors_total", "Ethernet68") == 0
    assert cell(harvest, "receive_bytes_total", "Ethernet1") is None
    assert cell(harvest, "queue_pfc_deadlocks_total", "Ethernet68", "3") == 0
    assert cell(harvest, "queue_depth_bytes", "Ethernet68", "3") == 0
    assert cell(harvest, "queue_highest_depth_bytes", "Ethernet68", "1") == 192
    assert cell(harvest, "priority_group_highest_headroom_bytes", "Ethernet16", "5") == 0
    assert cell(harvest, "priority_group_highest_headroom_bytes", "Ethernet16", "4") is None


FILES = {
    "premday_sonic-exporter/asic_db_data.json": "objects of the chip; not read",
    "gnmi/COUNTERS_Ethernet1.txt": "the same shape as Ethernet68",
    "gnmi/COUNTERS_Ethernet68_Queues.txt": "several hashes in one answer of gNMI",
    "gnmi/COUNTERS_Ethernet68_Queues_alias_expected.txt": "an answer of gNMI",
    "gnmi/COUNTERS_Ethernet68_Queues_expected.txt": "an answer of gNMI",
    "gnmi/COUNTERS_Ethernet_wildcard_PFC_7_RX.txt": "an answer of gNMI",
    "gnmi/COUNTERS_Ethernet_wildcard_PFC_7_RX_alias.txt": "an answer of gNMI",
    "gnmi/COUNTERS_PORT_ALIAS_MAP.txt": "aliases are read from PORT_TABLE",
    "gnmi/PERIODIC_WATERMARKS_Ethernet16_PriorityGroups_alias.txt": "the same by alias",
    "gnmi/PERIODIC_WATERMARKS_Ethernet16_PriorityGroups_alias_expected.txt": "an answer of gNMI",
    "gnmi/PERIODIC_WATERMARKS_Ethernet16_PriorityGroups_expected.txt": "an answer of gNMI",
    "gnmi/PERIODIC_WATERMARKS_Ethernet_wildcard_PriorityGroups_alias.txt": "an answer of gNMI",
    "gnmi/PERIODIC_WATERMARKS_Ethernet_wildcard_PriorityGroups_alias_expected.txt": "an answer of gNMI",
    "gnmi/PERIODIC_WATERMARKS_oid_0x1a0000000002d2.txt": "one of PERIODIC_WATERMARKS_Ethernet16_PriorityGroups.txt",
    **{
        f"gnmi/PORT_PHY_ATTR_{name}": "attributes of lanes; not read"
        for name in (
            "Ethernet_single_entry.json",
            "Ethernet_wildcard.json",
            "Ethernet_wildcard_expected.json",
            "oid_0x1000000000003.txt",
            "oid_0x1000000000039.txt",
        )
    },
    **dict.fromkeys(
        [
            *(f"premday_sonic-exporter/{name}_db_data.json" for name in DATABASES),
            *(f"vinted_sonic-exporter/{name}_db_data.json" for name in ("counters", "config", "state")),
            "utilities/counters_db.json",
            "utilities/t1_counter_db.json",
            "utilities/t1_state_db.json",
            "gnmi/COUNTERS_Ethernet68.txt",
            "gnmi/COUNTERS_Ethernet68_Pfcwd.txt",
            "gnmi/COUNTERS_PG_NAME_MAP.txt",
            "gnmi/COUNTERS_PORT_NAME_MAP.txt",
            "gnmi/COUNTERS_QUEUE_NAME_MAP.txt",
            "gnmi/PERIODIC_WATERMARKS_Ethernet16_PriorityGroups.txt",
            "gnmi/PERIODIC_WATERMARKS_oid_0x1500000000091c.txt",
        ]
    ),
}
"""Every file, and why it is not tested where it is not; those of RESTCONF are in test_switch_rest.py."""


def test_every_recording_is_tested_or_has_a_reason_not_to_be(corpus):
    folder = corpus / "switch" / "sonic"
    found = {str(path.relative_to(folder)) for path in folder.glob("*/*") if path.parent.name != "mgmt-common"}
    assert found == FILES.keys()


def test_every_dump_of_counters_is_tested(corpus):
    folder = corpus / "switch" / "sonic"
    found = {f"corpus/sonic/{path.relative_to(folder)}" for path in folder.glob("*/*count*db*.json")}
    assert found == DUMPS.keys() - {OWN["counters"]}
