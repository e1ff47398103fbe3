"""One switch as a source: what its readers bring, with its place in the fabric, up to what is made of it."""

from dataclasses import replace

import pytest

from exporter.core.source import SourceError
from exporter.core.table import Column
from exporter.meaning.ports import (
    imbalance,
    links,
    oversubscription,
    rates,
)
from exporter.sources.switch import source as switch
from exporter.sources.switch.merge import (
    Family,
    PartialTable,
    ReadingMerger,
    Support,
    SwitchDevice,
    SwitchReading,
    best_by_family,
    best_support,
)
from exporter.sources.switch.metrics import PORTS, QUEUES
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource
from exporter.switch_api.neighbour import LldpNeighbour

SPEED = 50e9
SPINES = frozenset({"bridge", "router"})
PORT_NAMES = tuple(f"Ethernet1/{number}" for number in range(1, 7))
KEYS = [(port,) for port in PORT_NAMES]
NEIGHBOURS = [
    *(LldpNeighbour(port, name=f"gpu{port[-1]}", capabilities=frozenset({"station"})) for port in PORT_NAMES[:4]),
    *(LldpNeighbour(port, name=f"spine{port[-1]}", capabilities=SPINES) for port in PORT_NAMES[4:]),
]


class ScriptedReader:
    """A reader with scripted readings; the last one is repeated."""

    def __init__(self, *readings, protocol="snmp"):
        self.protocol, self.readings, self.closed = protocol, list(readings), False

    async def read(self):
        reading = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(reading, SourceError):
            raise reading
        return reading

    def invalidate_neighbours(self, port):
        """Do nothing: every reading is scripted."""

    async def close(self):
        self.closed = True


def reading(time, *, counted=None, sent=None, ups=(1,) * 6, speeds=(SPEED,) * 6, neighbours=NEIGHBOURS, device=None):
    """Return a reading: `sent` are bytes by port; a link that is down has no speed."""
    columns = {
        "receive_bytes_total": [0] * 6,
        "transmit_bytes_total": sent or [0] * 6,
        "link_up": list(ups),
        "link_speed_bytes_per_second": [speed if up else None for speed, up in zip(speeds, ups, strict=True)],
    }
    part = PartialTable(
        PORTS,
        KEYS,
        {ending: Column(PORTS.metrics[ending], values) for ending, values in columns.items()},
        time,
        times=[time if counted is None else counted] * 6,
    )
    return SwitchReading(device or SwitchDevice(name="leaf1"), [part], {}, neighbours)


class Polled:
    """Passes the tables of a switch through all steps of meaning, as the poller does."""

    STEPS = (
        rates.step,
        lambda state, table: links.step(None, None, state, table),
        imbalance.step,
        oversubscription.step,
    )

    def __init__(self, *readers, target=None):
        self.registry = SwitchRegistry()
        target = target or Target(name="one", address="192.0.2.1", snmp=Snmp(community="x"))
        self.source = SwitchSource(target, 15.0, readers, self.registry)
        self.memory = {}

    async def poll(self):
        """Return {name: {labels: value}} of one poll."""
        tables = (await self.source.read()).tables
        for place, step in enumerate(self.STEPS):
            made = []
            for table in tables:
                key = (place, table.schema, table.part)
                self.memory[key], out = step(self.memory.get(key), table)
                made += out
            tables = made
        return {
            column.metric.name: dict(zip(table.rows.keys, column.values, strict=True))
            for table in tables
            for column in table.columns.values()
        }


async def test_links_and_role_of_a_switch_have_its_label():
    found = await Polled(ScriptedReader(reading(1.0))).poll()
    assert found["fabric_link_info"]["", "", "leaf1", "Ethernet1/5", "spine5", ""] == ("switch", "", "")
    assert found["fabric_link_info"]["", "", "leaf1", "Ethernet1/1", "gpu1", ""] == ("host", "", "")
    assert len(found["fabric_link_info"]) == 6
    assert found["fabric_switch_device_info"]["leaf1",][1] == "leaf"
    assert found["fabric_switch_group_info"] == {
        ("leaf1", port): ("host" if place < 4 else "uplink",) for place, port in enumerate(PORT_NAMES)
    }


async def test_neighbours_come_from_the_first_protocol_that_has_them():
    readers = [
        ScriptedReader(reading(1.0, neighbours=None)),
        ScriptedReader(reading(1.0, neighbours=NEIGHBOURS[:2]), protocol="onyx"),
    ]
    assert len((await Polled(*readers).poll())["fabric_link_info"]) == 2


async def test_neighbours_that_are_not_known_leave_no_links_and_the_role_that_was_seen():
    polled = Polled(ScriptedReader(reading(1.0), reading(16.0, neighbours=None)))
    await polled.poll()
    found = await polled.poll()
    assert "fabric_link_info" not in found
    assert found["fabric_switch_device_info"]["leaf1",][1] == "leaf"


async def test_an_uplink_that_is_slower_than_its_siblings_is_degraded_and_a_port_to_a_host_is_not_judged():
    speeds = (SPEED, SPEED / 4, SPEED, SPEED, SPEED, SPEED / 2)
    neighbours = [*NEIGHBOURS[:3], replace(NEIGHBOURS[4], port=PORT_NAMES[3]), *NEIGHBOURS[4:]]
    found = await Polled(ScriptedReader(reading(1.0, speeds=speeds, neighbours=neighbours))).poll()
    degraded = found["fabric_switch_link_degraded"]
    assert [degraded["leaf1", port] for port in PORT_NAMES] == [None, None, None, 0, 0, 1]
    assert found["fabric_switch_link_expected_speed_bytes_per_second"]["leaf1", "Ethernet1/6"] == SPEED


@pytest.mark.parametrize(
    ("ups", "ratio"),
    [
        ((1, 1, 1, 1, 1, 1), 2.0),
        ((1, 1, 1, 0, 1, 1), 1.5),
        ((1, 1, 1, 1, 1, 0), 4.0),  # a lost uplink
        ((1, 1, 1, 1, 0, 0), None),  # all are lost: no ratio
        ((0, 0, 0, 0, 1, 1), None),
    ],
)
async def test_oversubscription_is_what_hosts_can_send_over_what_uplinks_can_carry(ups, ratio):
    polled = Polled(ScriptedReader(reading(1.0), reading(16.0, ups=ups)))
    await polled.poll()
    found = (await polled.poll()).get("fabric_switch_oversubscription_ratio", {})
    assert found.get(("leaf1",)) == ratio


async def test_oversubscription_is_absent_where_a_speed_is_not_known():
    for unknown in (0, 5):
        speeds = [SPEED] * 6
        speeds[unknown] = None
        assert (
            "fabric_switch_oversubscription_ratio"
            not in await Polled(ScriptedReader(reading(1.0, speeds=speeds))).poll()
        )


async def test_uplinks_are_compared_with_each_other_and_have_one_utilization():
    """30 and 10 GB/s of 50 GB/s each: the busiest is half above the mean, and two fifths of both are in use."""
    rate = [10**9] * 4 + [30 * 10**9, 10 * 10**9]
    polled = Polled(
        ScriptedReader(*(reading(15.0 * poll, sent=[one * 15 * poll for one in rate]) for poll in range(3)))
    )
    for _ in range(3):
        found = await polled.poll()
    assert found["fabric_switch_transmit_imbalance_ratio"]["leaf1", "uplink"] == pytest.approx(0.5)
    assert found["fabric_switch_transmit_deficit_ratio"]["leaf1", "uplink"] == pytest.approx(0.5)
    assert found["fabric_switch_transmit_imbalance_ratio"]["leaf1", "host"] == pytest.approx(0.0)
    assert found["fabric_switch_uplink_transmit_utilization_ratio"] == {("leaf1",): pytest.approx(0.4)}
    assert found["fabric_switch_uplink_receive_utilization_ratio"] == {("leaf1",): 0.0}


async def test_a_switch_that_refreshes_its_counters_once_a_minute_has_steady_rates_and_a_steady_imbalance():
    rate = [10**9] * 4 + [30 * 10**9, 10 * 10**9]

    def cached(now):
        counted = now // 60 * 60
        return reading(now, counted=counted, sent=[int(one * counted) for one in rate])

    polled = Polled(ScriptedReader(*(cached(15.0 * poll) for poll in range(20))))
    seen = [await polled.poll() for _ in range(20)]
    assert seen[4:]
    for found in seen[4:]:
        sent = found["fabric_switch_transmit_bytes_per_second"]
        assert [sent["leaf1", port] for port in PORT_NAMES] == [pytest.approx(one) for one in rate]
        assert found["fabric_switch_transmit_imbalance_ratio"]["leaf1", "uplink"] == pytest.approx(0.5)
        assert found["fabric_switch_uplink_transmit_utilization_ratio"]["leaf1",] == pytest.approx(0.4)


async def test_a_repeated_reading_changes_nothing():
    rate = [10**9] * 4 + [30 * 10**9, 10 * 10**9]
    readings = [reading(15.0 * poll, sent=[one * 15 * poll for one in rate]) for poll in range(4)]
    polled = Polled(ScriptedReader(readings[0], readings[1], readings[2], readings[2], readings[3]))
    seen = [await polled.poll() for _ in range(5)]
    assert seen[2:]
    for found in seen[2:]:
        assert found["fabric_switch_transmit_bytes_per_second"]["leaf1", "Ethernet1/5"] == pytest.approx(30e9)
        assert found["fabric_switch_transmit_imbalance_ratio"]["leaf1", "uplink"] == pytest.approx(0.5)


async def test_if_every_protocol_fails_the_error_is_that_of_the_first():
    readers = [
        ScriptedReader(SourceError("timeout", "no answer")),
        ScriptedReader(SourceError("login", "refused"), protocol="onyx"),
    ]
    with pytest.raises(SourceError, match="no answer") as raised:
        await Polled(*readers).poll()
    assert raised.value.reason == "timeout"


async def test_a_protocol_that_fails_is_a_failure_of_the_reading():
    polled = Polled(ScriptedReader(reading(1.0)), ScriptedReader(SourceError("login", "refused"), protocol="onyx"))
    result = await polled.source.read()
    assert [(one.device, one.reason) for one in result.failures] == [("onyx", "login")]
    assert result.tables


async def test_every_exported_metric_is_declared():
    declared = {metric.name for schema in switch.SCHEMAS for metric in schema.metrics.values()}
    for meaning in (rates, links, imbalance, oversubscription):
        declared |= {metric.name for schema in switch.SCHEMAS for metric in meaning.outputs(schema)}
    polled = Polled(ScriptedReader(reading(0.0), reading(15.0, sent=[10**10] * 6)))
    await polled.poll()
    assert (await polled.poll()).keys() <= declared


async def test_closing_closes_every_reader_and_frees_the_name():
    readers = [ScriptedReader(reading(1.0)), ScriptedReader(reading(1.0), protocol="onyx")]
    polled = Polled(*readers)
    await polled.poll()
    await polled.source.close()
    assert [reader.closed for reader in readers] == [True, True]
    assert polled.registry.claim_label("two", "leaf1") == "leaf1"


def test_a_port_with_different_names_in_two_protocols_is_one():
    def part(schema, ending, *keys):
        return PartialTable(schema, list(keys), {ending: Column(schema.metrics[ending], [1] * len(keys))}, 1.0)

    joint = ReadingMerger()
    snmp = SwitchReading(parts=[part(PORTS, "receive_bytes_total", ("Ethernet1/1",), ("Ethernet1/2",))])
    other = SwitchReading(
        parts=[
            part(PORTS, "ecn_marked_packets_total", ("Eth1/1",), ("Eth1/3",)),
            part(QUEUES, "queue_depth_bytes", ("Eth1/1", "3")),
        ]
    )
    first, second, third = joint.tables("leaf-1", {"snmp": snmp, "onyx": other})
    assert first.rows.keys == (("leaf-1", "Ethernet1/1"), ("leaf-1", "Ethernet1/2"))
    assert second.rows.keys == (("leaf-1", "Ethernet1/1"), ("leaf-1", "Eth1/3"))
    assert third.rows.keys == (("leaf-1", "Ethernet1/1", "3"),)


def test_ports_with_the_same_canonical_name_keep_their_names():
    joint = ReadingMerger()
    one = [PartialTable(PORTS, [("Ethernet1/1",)], {"link_up": Column(PORTS.metrics["link_up"], [1])}, 1.0)]
    two = [
        PartialTable(PORTS, [("Eth1/1",), ("eth1/1",)], {"admin_up": Column(PORTS.metrics["admin_up"], [1, 0])}, 1.0)
    ]
    _, second = joint.tables("leaf-1", {"snmp": SwitchReading(parts=one), "onyx": SwitchReading(parts=two)})
    assert second.rows.keys == (("leaf-1", "Eth1/1"), ("leaf-1", "eth1/1"))


# --- what is counted


def test_the_support_of_a_family_is_the_best_of_several_protocols():
    counted, silent, failed, unknown = Support.COUNTED, Support.NOT_COUNTED, Support.FAILED, Support.UNSUPPORTED
    assert best_support([failed, counted]) is counted
    assert best_support([failed, silent, unknown]) is silent
    assert best_support([unknown, failed]) is failed, "unknown, since the reader that could know failed"
    assert best_support([]) is None
    requests = [(Family.PFC, unknown), (Family.ECN, failed), (Family.PFC, counted)]
    for ordered in (requests, requests[::-1]):
        assert best_by_family(ordered) == {Family.PFC: counted, Family.ECN: failed}
