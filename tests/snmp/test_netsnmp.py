"""Against others: net-snmp's agent and walkers, and gufo-snmp, must see the same rows as we do, in both directions."""

import asyncio
import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address

import pytest
from gufo.snmp.aio import SnmpSession

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp import ber
from exporter.snmp.ber import Typed, format_oid, parse_oid
from exporter.snmp.client import SnmpClient
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "snmp"
ROOT = parse_oid("1.3.6.1.4.1.33049.15.1")
PORT_COLUMNS = [(*ROOT, 2, 1, number) for number in range(1, 10)]
PRIORITY_COLUMN = (*ROOT, 3, 1, 1)
COLUMNS = [*PORT_COLUMNS, PRIORITY_COLUMN]

TYPES = {
    "string": (ber.OCTET_STRING, str.encode),
    "integer": (ber.INTEGER, int),
    "counter": (ber.COUNTER32, int),
    "gauge": (ber.GAUGE32, int),
    "counter64": (ber.COUNTER64, int),
    "timeticks": (ber.TIME_TICKS, int),
    "ipaddress": (ber.IP_ADDRESS, lambda text: IPv4Address(text).packed),
    "objectid": (ber.OBJECT_IDENTIFIER, parse_oid),
}
PRINTED = {
    "Hex-STRING": (ber.OCTET_STRING, bytes.fromhex),
    "INTEGER": (ber.INTEGER, int),
    "Counter32": (ber.COUNTER32, int),
    "Gauge32": (ber.GAUGE32, int),
    "Counter64": (ber.COUNTER64, int),
    "Timeticks": (ber.TIME_TICKS, lambda text: int(text[1 : text.index(")")])),
    "IpAddress": (ber.IP_ADDRESS, lambda text: IPv4Address(text).packed),
    "OID": (ber.OBJECT_IDENTIFIER, parse_oid),
    "OPAQUE": (ber.OPAQUE, bytes.fromhex),
}


def read_rows():
    made = {}
    for line in (FOLDER / "rows.txt").read_text().splitlines():
        if not line.startswith("#"):
            oid, kind, value = line.split()
            tag, read = TYPES[kind]
            made[parse_oid(oid)] = Typed(tag, read(value))
    return made


ROWS = read_rows()


def flat(result):
    """Put a walk's columns into one mapping of identifier to typed value."""
    return {
        (*oid, *index): Typed(column.other_tags.get(index, column.tag), value)
        for oid, column in result.columns.items()
        for index, value in column.rows.items()
    }


def read_walk(text):
    """Read what snmpwalk -On -Oe -Ox prints."""
    made = {}
    for line in text.splitlines():
        if "No more variables" in line:
            continue
        oid, _, printed = line.partition(" = ")
        if printed == '""':
            made[parse_oid(oid)] = Typed(ber.OCTET_STRING, b"")
            continue
        name, _, value = printed.partition(": ")
        tag, read = PRINTED[name]
        made[parse_oid(oid)] = Typed(tag, read(value))
    return made


async def run(*command):
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def net_snmp(path, address, oid):
    options = ["-v2c", "-c", "public", "-m", "", "-On", "-Oe", "-Ox", "-t", "20"]
    return read_walk(await run(path, *options, f"udp:{address}", format_oid(oid)))


@pytest.fixture
def snmpd(program, tmp_path):
    path = program("snmpd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    config = tmp_path / "snmpd.conf"
    served = f"{sys.executable} {FOLDER / 'pass_persist.py'} {FOLDER / 'rows.txt'}"
    config.write_text(f"rocommunity public 127.0.0.1\nsysname leaf-01\npass_persist .{format_oid(ROOT)} {served}\n")
    process = subprocess.Popen(
        [path, "-f", "-Lo", "-r", "-C", "-c", config, "-I", "-smux", "-p", tmp_path / "pid", f"udp:{address}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"SNMP_PERSISTENT_DIR": str(tmp_path), "MIBS": ""},
    )
    with process:
        seen = ""
        while "NET-SNMP version" not in seen:  # printed when it listens
            line = process.stdout.readline()
            assert line, seen
            seen += line
        yield address
        process.terminate()
        process.stdout.read()


async def test_a_walk_of_snmpd_returns_its_rows(snmpd):
    async with SnmpClient(snmpd, "public", timeout=20, deadline=60) as client:
        result = await client.walk(COLUMNS)
    assert result.problems == []
    assert flat(result) == ROWS


@pytest.mark.parametrize("name", ["snmpbulkwalk", "snmpwalk"])
async def test_a_walk_of_snmpd_agrees_with_snmpbulkwalk(snmpd, program, name):
    # Its own system group too: sysObjectID, sysName, and of sysORTable what has more rows.
    system = (1, 3, 6, 1, 2, 1, 1)
    columns = [(*system, 2), (*system, 5), (*system, 9, 1, 2), (*system, 9, 1, 4), *PORT_COLUMNS]
    theirs = {}
    for column in columns:
        theirs |= await net_snmp(program(name), snmpd, column)
    async with SnmpClient(snmpd, "public", timeout=20, deadline=60) as client:
        assert flat(await client.walk(columns)) == theirs
    assert theirs[*system, 5, 0] == Typed(ber.OCTET_STRING, b"leaf-01")
    assert len(theirs) > len(PORT_COLUMNS) * 6 + 2


async def test_a_get_of_snmpd(snmpd):
    known, unknown = (*PORT_COLUMNS[5], 1), (*PORT_COLUMNS[5], 2)
    async with SnmpClient(snmpd, "public", timeout=20, deadline=60) as client:
        result = await client.get([known, unknown])
    assert result.values == {known: Typed(ber.COUNTER64, 2**64 - 1)}
    assert result.problems == []


@pytest.fixture
async def agent():
    extra = {(*ROOT, 4, 1): Typed(ber.OCTET_STRING, b""), (*ROOT, 4, 2): Typed(ber.OPAQUE, b"\x01\x02\x03")}
    async with SnmpAgent(ROWS | extra) as running:
        running.address = "{}:{}".format(*await running.start())
        running.expected = ROWS | extra
        yield running


@pytest.mark.parametrize("name", ["snmpbulkwalk", "snmpwalk"])
async def test_snmpbulkwalk_of_the_simulated_agent_returns_its_rows(agent, program, name):
    assert await net_snmp(program(name), agent.address, ROOT) == agent.expected


async def test_gufo_reads_the_same_from_the_simulated_agent(agent):
    host, port = agent.address.split(":")
    async with SnmpClient(agent.address, "public", timeout=20) as client:
        ours = flat(await client.walk(PORT_COLUMNS[:7]))
    theirs = {}
    async with SnmpSession(addr=host, port=int(port), community="public", timeout=20) as session:
        for column in PORT_COLUMNS[:7]:
            async for oid, value in session.getbulk(format_oid(column)):
                theirs[parse_oid(oid)] = value
    assert theirs == {oid: value.value for oid, value in ours.items()}
    assert len(theirs) == 42
