"""Dumps of SONiC's databases, of its own tests and of other exporters, put into a real redis and read from there.

Expected values were read off the files by jq.
"""

import contextlib
import json
import subprocess
import time

import pytest
import redis

from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.options import Redis, Target
from exporter.sources.switch.readers.sonic_db.reader import RedisReader

LONG = 60.0
NUMBERS = {"appl": 0, "counters": 2, "config": 4, "state": 6}


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    """Run a redis on a socket in a folder, and give the path of that."""
    folder = tmp_path_factory.mktemp("redis")
    path = str(folder / "redis.sock")
    command = [program("redis-server"), "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        client = redis.Redis(unix_socket_path=path)
        end = time.monotonic() + LONG
        while True:
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                break
            assert time.monotonic() < end
        client.close()
        yield path
        process.terminate()


@pytest.fixture
def read(corpus, server):
    """Give a function that puts files into databases, by the name of the database, and reads the switch."""
    folder = corpus / "switch" / "sonic"

    async def run(hashes, **files):
        for database, number in NUMBERS.items():
            with redis.Redis(unix_socket_path=server, db=number) as client:
                client.flushdb()
                told = hashes_of(folder / files[database]) if database in files else {}
                for key, fields in (*told.items(), *hashes(folder).get(database, {}).items()):
                    client.hset(key, mapping=fields)
        given = Redis(address=server, timeout=20.0)
        reader = RedisReader(Target(name="leaf-1", address="192.0.2.1", redis=given, optics=True), given, LONG)
        try:
            return await reader.read()
        finally:
            await reader.close()

    return run


def hashes_of(path):
    data = json.loads(path.read_text())
    data = data.get("data", data)
    read = {key: value.get("value", value) if isinstance(value, dict) else value for key, value in data.items()}
    return {key: value for key, value in read.items() if isinstance(value, dict) and value}


def nothing(_):
    return {}


def cell(harvest, ending, *key):
    """Give a value as it is exported; None where there is none."""
    for part in harvest.parts:
        if ending in part.columns and key in part.keys:
            return part.columns[ending].values[part.keys.index(key)]
    return None


async def test_a_switch_in_four_databases(read):
    folder = "premday_sonic-exporter/"
    files = {name: f"{folder}{name}_db_data.json" for name in NUMBERS}
    seen = {"counters": {"COUNTERS_PORT_NAME_MAP": {"Ethernet88": "oid:0x1000000000006"}}}
    harvest = await read(lambda _: seen, **files)
    assert (harvest.device.name, harvest.device.model) == ("switch01.example.net", "Example-SKU-48X")
    assert harvest.device.chassis == "74:86:e2:a4:6c:a5"
    (one,) = harvest.neighbours  # that of eth0, and an entry with nothing but an index, are none
    assert (one.port, one.chassis, one.peer_port) == ("Ethernet88", "74:86:e2:6d:df:a5", "hundredGigE1/23")
    assert (one.name, one.addresses) == ("net-tor-lab001.lau1", ("192.168.240.123",))
    assert cell(harvest, "receive_bytes_total", "Ethernet0") == 123
    assert harvest.families[Family.TRAFFIC] is Support.COUNTED
    assert harvest.families[Family.ECN] is Support.NOT_COUNTED


async def test_modules_with_sensors(read):
    folder = "vinted_sonic-exporter/"
    files = {name: f"{folder}{name}_db_data.json" for name in ("counters", "config", "state")}
    harvest = await read(nothing, **files)
    assert cell(harvest, "module_temperature_celsius", "Ethernet0") == 25.639
    assert cell(harvest, "module_voltage_volts", "Ethernet0") == 3.436
    assert cell(harvest, "module_lane_receive_power_watts", "Ethernet0", "1") == pytest.approx(1.151330e-3, rel=1e-6)
    assert cell(harvest, "module_lane_receive_power_watts", "Ethernet0", "2") is None


async def test_modules_without_sensors(read):
    """All 32 entries of the dump have 0 volts: they are of a simulator."""
    harvest = await read(nothing, counters="utilities/t1_counter_db.json", state="utilities/t1_state_db.json")
    assert harvest.families[Family.OPTICS] is Support.NOT_COUNTED
    assert not any("module_temperature_celsius" in part.columns for part in harvest.parts)


async def test_the_tables_of_a_switch_of_55_ports(read):
    """Maps of names, and counters of a port, a watched queue and priority groups, from files of their own."""

    def hashes(folder):
        gnmi = folder / "gnmi"
        maps = ("COUNTERS_PORT_NAME_MAP", "COUNTERS_QUEUE_NAME_MAP", "COUNTERS_PG_NAME_MAP")
        found = {name: json.loads((gnmi / f"{name}.txt").read_text()) for name in maps}
        queues, groups = found["COUNTERS_QUEUE_NAME_MAP"], found["COUNTERS_PG_NAME_MAP"]
        port = found["COUNTERS_PORT_NAME_MAP"]["Ethernet68"]
        watched = json.loads((gnmi / "COUNTERS_Ethernet68_Pfcwd.txt").read_text())
        for queue, values in watched.items():
            found[f"COUNTERS:{queues[queue]}"] = values
        told = json.loads((gnmi / "PERIODIC_WATERMARKS_Ethernet16_PriorityGroups.txt").read_text())
        for group, values in told.items():
            if values:
                found[f"PERIODIC_WATERMARKS:{groups[group]}"] = values
        text = (gnmi / "COUNTERS_Ethernet68.txt").read_text().replace('"2",\n}', '"2"\n}')  # as a program writes it
        found[f"COUNTERS:{port}"] = json.loads(text)
        oid = "oid:0x1500000000091c"
        found[f"PERIODIC_WATERMARKS:{oid}"] = json.loads(
            (gnmi / "PERIODIC_WATERMARKS_oid_0x1500000000091c.txt").read_text()
        )
        return {"counters": found}

    harvest = await read(hashes)
    assert harvest.failures == []
    ports, queues, groups = (
        next(part.keys for part in harvest.parts if part.schema.labels[2:] == labels)
        for labels in ((), ("queue",), ("priority_group",))
    )
    assert (len(ports), len(queues), len(groups)) == (55, 1080, 432)
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
    "premday_sonic-exporter/asic_db_data.json": "objects of the chip, not read",
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
        f"gnmi/PORT_PHY_ATTR_{name}": "attributes of lanes, not read"
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
            *(f"premday_sonic-exporter/{name}_db_data.json" for name in NUMBERS),
            *(f"vinted_sonic-exporter/{name}_db_data.json" for name in ("counters", "config", "state")),
            "utilities/counters_db.json",  # in test_sonic_db.py
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
"""Every file, and why it is not read where it is not; those of RESTCONF are in test_switch_restconf.py."""


def test_every_recording_is_tested_or_has_a_reason_not_to_be(corpus):
    folder = corpus / "switch" / "sonic"
    there = {str(path.relative_to(folder)) for path in folder.glob("*/*") if path.parent.name != "mgmt-common"}
    assert there == FILES.keys()
