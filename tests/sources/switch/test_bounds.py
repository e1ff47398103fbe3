"""What a switch reports is bounded: texts, interfaces, and what is kept of them, however it is read."""

import asyncio
import threading
from time import process_time

import pytest

from exporter.core.table import Column
from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp.ber import COUNTER64, INTEGER, OCTET_STRING, TIME_TICKS, Typed
from exporter.snmp.client import SnmpClient
from exporter.snmp.exchange import Problem, Reason
from exporter.snmp.walk import WalkColumn, WalkResult
from exporter.sources.switch.merge import PartialTable, ReadingMerger, SwitchReading
from exporter.sources.switch.metrics import PORTS
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.port_labels import NAME_SECONDS, PortLabels
from exporter.sources.switch.port_names import canonical
from exporter.sources.switch.readers.snmp import inventory
from exporter.sources.switch.readers.snmp.counters import SnmpCounters
from exporter.sources.switch.readers.snmp.inventory import COLUMNS, IF_DESCR, IF_NAME, IF_TYPE
from exporter.sources.switch.readers.snmp.reader import SnmpReader
from exporter.switch_api import http
from exporter.switch_api.eapi import parser as eapi
from exporter.switch_api.nvue import parser as nvue
from exporter.switch_api.nxapi import parser as nxapi
from exporter.switch_api.port import MAX_PORTS
from exporter.switch_api.restconf import parser as restconf

TARGET = Target(name="leaf", address="127.0.0.1", snmp=Snmp(community="public"))
IF_MIB, IF_X = (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
TWO_TO_THE_TWELFTH = 4096
"""The bound on ports that the documentation states."""


class Walked:
    """A client whose walks return given rows, all of them incomplete if there is a problem."""

    address = "leaf"

    def __init__(self):
        self.names = {}
        self.problem = False

    async def walk(self, columns):
        rows = {IF_NAME: self.names, IF_DESCR: self.names, IF_TYPE: dict.fromkeys(self.names, 6)}
        found = {oid: WalkColumn(oid, dict(rows.get(oid, {}))) for oid in columns}
        problems = [Problem(oid, Reason.TIMEOUT, "no response") for oid in columns] if self.problem else []
        return WalkResult(found, problems)


def names(first, count):
    return {(index,): b"Ethernet%d" % index for index in range(first, first + count)}


async def inventories(readings, *, problem):
    client, known, sizes = Walked(), None, []
    for rows in readings:
        client.names, client.problem = rows, problem
        known, failures = await inventory.read_inventory(client, TARGET, known)
        sizes.append(max(len(known.texts[oid]) for oid in COLUMNS))
    return known, sizes, failures


def test_texts_of_an_agent_that_invents_interfaces_do_not_accumulate():
    known, sizes, _ = asyncio.run(inventories([names(1000 * turn, 1000) for turn in range(12)], problem=True))
    assert max(sizes) <= 4 * 1000  # its own, and those of three readings before
    assert len(known.ages) == sizes[-1]


def test_text_of_an_interface_survives_a_failed_reading_but_not_its_removal():
    both, one = names(1, 2), names(1, 1)
    known, _, _ = asyncio.run(inventories([both, one], problem=True))
    assert known.ports == {(1,): "Ethernet1", (2,): "Ethernet2"}
    known, _, _ = asyncio.run(inventories([both, one], problem=False))
    assert known.ports == {(1,): "Ethernet1"}
    known, _, _ = asyncio.run(inventories([both, *[one] * 4], problem=True))
    assert known.ports == {(1,): "Ethernet1"}


def test_interfaces_above_the_bound_are_left_out_and_counted():
    known, _, failures = asyncio.run(inventories([names(1, 20_081)], problem=False))
    assert (len(known.ports), MAX_PORTS) == (TWO_TO_THE_TWELFTH, TWO_TO_THE_TWELFTH)
    assert [(one.device, one.reason) for one in failures] == [("interfaces", "too_many")]
    assert "15985 are left out" in failures[0].detail


def test_interfaces_that_are_no_ports_are_left_out_first():
    """All rows have ifType 6, as those of Nokia SR Linux do, and the ports are the last ones."""
    units = {(index,): b"ethernet-1/1.%d" % index for index in range(1, 5001)}
    ports = {(5000 + index,): b"ethernet-1/%d" % index for index in range(1, 65)}
    known, _, failures = asyncio.run(inventories([units | ports], problem=False))
    assert ports.keys() <= known.ports.keys()
    assert len(known.ports) == TWO_TO_THE_TWELFTH
    assert f"{5064 - TWO_TO_THE_TWELFTH} are left out" in failures[0].detail


def test_labels_of_ports_that_no_way_reports_expire():
    labels = PortLabels()
    assert labels.assign("snmp", "snmp", ["Eth1/1"], 0.0) == {"Eth1/1": "Eth1/1"}
    assert labels.assign("eapi", "eapi", ["Ethernet1/1", "Ethernet1/2"], 0.0) == {
        "Ethernet1/1": "Eth1/1",
        "Ethernet1/2": "Ethernet1/2",
    }
    labels.assign("snmp", "snmp", [], 1.0)
    labels.assign("eapi", "eapi", ["Ethernet1/2"], 2.0)
    assert labels.assign("eapi", "eapi", ["Ethernet1/1"], 2.0) == {"Ethernet1/1": "Eth1/1"}, "it is kept for a while"
    labels.assign("eapi", "eapi", [], 3.0)
    labels.assign("eapi", "eapi", [], 3.0 + NAME_SECONDS + 1)
    assert labels.assign("eapi", "eapi", ["Ethernet1/1"], 9999.0) == {"Ethernet1/1": "Ethernet1/1"}


def test_labels_are_bounded_and_new_ports_replace_those_that_are_gone():
    labels = PortLabels()
    for turn in range(5):
        ports = [f"Ethernet{1000 * turn + number}" for number in range(1000)]
        assert labels.assign("snmp", "snmp", ports, float(turn)) == dict(zip(ports, ports, strict=True))
    crowd = [f"swp{number}" for number in range(5000)]
    found = labels.assign("snmp", "snmp", crowd, 9.0)
    assert sum(label is not None for label in found.values()) == MAX_PORTS


def test_rows_of_ports_above_the_bound_are_left_out_of_all_ways_together():
    def reading(first, count):
        keys = [(f"Ethernet{number}",) for number in range(first, first + count)]
        column = Column(PORTS.metrics["receive_bytes_total"], list(range(first, first + count)))
        return SwitchReading(parts=[PartialTable(PORTS, keys, {"receive_bytes_total": column}, 1.0)])

    merger = ReadingMerger()
    (table,) = merger.tables("leaf", {"snmp": reading(0, 5000)})
    assert len(table.rows) == len(table.values("receive_bytes_total")) == MAX_PORTS
    assert table.values("receive_bytes_total")[:3] == [0, 1, 2]
    assert merger.ports_left_out == 5000 - MAX_PORTS


@pytest.mark.parametrize(
    "name", ["1" + " " * 60_000 + "x", " " * 60_000, "a" * 60_000, "(" * 60_000 + ")", "1(" * 30_000]
)
def test_a_name_of_60_kb_costs_what_its_length_does(name):
    def cost(text):
        began = process_time()
        for _ in range(20):
            canonical(text)
        return process_time() - began

    rounds = [(cost(name[:30_000]), cost(name)) for _ in range(5)]
    short, long = map(min, zip(*rounds, strict=True))
    assert long <= 3 * short


def test_a_text_of_60_kb_by_snmp_is_cut_off_and_counted():
    rows = {(1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 1)}
    rows |= {
        (*IF_MIB, 2, 1): Typed(OCTET_STRING, b"1" + b" " * 60_000 + b"x"),
        (*IF_MIB, 3, 1): Typed(INTEGER, 6),
        (*IF_MIB, 8, 1): Typed(INTEGER, 1),
        (*IF_X, 1, 1): Typed(OCTET_STRING, b"1" + b" " * 60_000 + b"x"),
        (*IF_X, 6, 1): Typed(COUNTER64, 7),
    }

    async def read():
        async with SnmpAgent(rows, max_reply=65_000) as agent:
            address = "{}:{}".format(*await agent.start())
            async with SnmpClient(address, "public") as client:
                result = await client.walk([(*IF_X, 1)])
            target = Target(name="leaf", address=address, lldp=False, snmp=Snmp(community="public"))
            reader = SnmpReader(target, target.snmp, 30.0)
            reading = await reader.read()
            await reader.close()
            return result, reading

    result, reading = asyncio.run(read())
    assert [len(value) for value in result.columns[*IF_X, 1].rows.values()] == [1024]
    assert [one.reason for one in result.problems] == [Reason.TEXT_LIMIT]
    assert {one.reason for one in reading.failures} >= {"text_limit"}
    assert next(iter(reading.parts)).columns["receive_bytes_total"].values == [7]


@pytest.mark.slow
def test_long_work_on_the_rows_of_a_large_switch_is_in_a_thread(monkeypatch):
    """24,000 rows of counters: work on them in the event loop blocked scrapes and other polls for a second."""
    rows = {(1, 3, 6, 1, 2, 1, 1, 3, 0): Typed(TIME_TICKS, 1)}
    for index in range(1, 4001):
        rows[*IF_MIB, 2, index] = rows[*IF_X, 1, index] = Typed(OCTET_STRING, b"Ethernet%d" % index)
        rows[*IF_MIB, 3, index], rows[*IF_MIB, 8, index] = Typed(INTEGER, 6), Typed(INTEGER, 1)
        for column in (6, 7, 10, 11, 13):  # ifHCInOctets to ifHCOutBroadcastPkts
            rows[*IF_X, column, index] = Typed(COUNTER64, index)
    threads = {}

    def watched(name, work):
        def call(*args, **options):
            threads[name] = threading.current_thread()
            return work(*args, **options)

        return call

    for name in ("add_walk", "missing_rows", "parts"):
        monkeypatch.setattr(SnmpCounters, name, watched(name, getattr(SnmpCounters, name)))

    async def read():
        async with SnmpAgent(rows, max_reply=65_000) as agent:
            address = "{}:{}".format(*await agent.start())
            target = Target(name="leaf", address=address, lldp=False, snmp=Snmp(community="public"))
            reader = SnmpReader(target, target.snmp, 120.0)
            reading = await reader.read()
            await reader.close()
            return reading

    reading = asyncio.run(read())
    assert reading.parts[0].columns["receive_bytes_total"].values == [*range(1, 4001)]
    assert threads.keys() == {"add_walk", "missing_rows", "parts"}
    assert threading.current_thread() not in threads.values()


def by_eapi(ports):
    return eapi.parse_interfaces({"interfaces": {port: {"interfaceStatus": "connected"} for port in ports}})


def by_nvue(ports):
    return nvue.parse_interfaces({port.replace("Ethernet", "swp"): {"link": {}, "type": "swp"} for port in ports})


def by_nxapi(ports):
    return nxapi.parse_interfaces({"TABLE_interface": {"ROW_interface": [{"interface": port} for port in ports]}})


def by_restconf(ports):
    entries = [{"name": port, "state": {"type": "iana-if-type:ethernetCsmacd"}} for port in ports]
    return restconf.parse_interfaces({"openconfig-interfaces:interfaces": {"interface": entries}})


@pytest.mark.parametrize("parse", [by_eapi, by_nvue, by_nxapi, by_restconf])
def test_every_api_has_the_same_bound_on_ports_and_reports_it(parse):
    parsed = parse([f"Ethernet{number}" for number in range(5000)])
    assert len(parsed.ports) == TWO_TO_THE_TWELFTH
    assert parsed.problems[0].endswith("skipped, as there are more than 4096 ports")


@pytest.mark.parametrize("parse", [by_eapi, by_nxapi, by_restconf])
def test_a_port_whose_name_is_too_long_is_left_out_and_reported(parse):
    parsed = parse(["Ethernet1", "Ethernet" + "1" * 60_000])
    assert list(parsed.ports) == ["Ethernet1"]
    assert [problem.endswith("the name is longer than 255 characters") for problem in parsed.problems] == [True]


@pytest.mark.parametrize(
    ("body", "usable"),
    [
        (b"[" + b"[]," * 2_000_000 + b"[]]", False),
        (b"[" + b"0," * 2_000_000 + b"0]", False),
        (b"[" + b"{}," * 100_000 + b"{}]", True),
        (b"[" + b"0," * 1_000_000 + b"0]", True),
    ],
)
def test_json_with_more_values_than_a_switch_has_is_refused(body, usable):
    assert isinstance(http.decode_json(body), list) is usable
