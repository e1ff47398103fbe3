"""Many simulated switches at once, some of them ill, and single ones to the byte: real reader, source and poller."""

import asyncio
import contextlib
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from exporter.core.poller import Poller
from exporter.daemon.health import SOURCE, Health
from exporter.meaning.ports import rates
from exporter.sources.switch import source as switches
from exporter.sources.switch.metrics import PORTS, PRIORITIES
from exporter.sources.switch.options import Snmp, Target
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.source import SwitchSource
from tests.simulators.snmp_switch import SimulatedSwitch

TARGETS, SWITCH_PORTS = 40, 8
INTERVAL = 2.0
READS = 3
BUDGET = 150.0
"""Seconds that the many may take for their reads, on a machine that has much else to do."""

ILL = ("dead", "slow", "looping")


def source_of(simulated, address, registry, *, interval=INTERVAL, patience=0.5):
    """Make the source of one simulated switch."""
    snmp = Snmp(community="public", timeout=patience, retries=1)
    target = Target(name=f"target-{simulated.name}", address=address, snmp=snmp)
    return SwitchSource(
        target, interval, [switches.make_reader(target, "snmp", interval, shared=registry.shared)], registry
    )


@contextlib.asynccontextmanager
async def polled(*simulated, interval=INTERVAL, patience=0.5):
    """Start agents; return a poller for each."""
    registry = SwitchRegistry()
    pollers = []
    async with contextlib.AsyncExitStack() as stack:
        for one in simulated:
            await stack.enter_async_context(one.agent)
            address = "{}:{}".format(*await one.agent.start())
            source = source_of(one, address, registry, interval=interval, patience=patience)
            stack.push_async_callback(source.close)
            pollers.append(Poller(source, [rates.step]))
        yield pollers


def rows(tables, schema):
    """Return the rows of all tables of a schema, by label: what they have."""
    found = {}
    for table in tables:
        if table.schema.prefix == schema.prefix and table.schema.labels == schema.labels:
            for place, key in enumerate(table.rows.keys):
                row = found.setdefault(key[1:], {})
                row |= {ending: column.values[place] for ending, column in table.columns.items()}
    return found


# --- many

MAX_STALL = 0.2
"""Seconds by which the event loop may be late, of the 0.5 after which a request is sent again."""


async def poll_fleet(simulated, ill):
    """Poll a fleet some times; return the pollers, how they did, and the longest stall of the event loop."""
    for one in simulated:
        if one.name in ill:
            one.begin(ill[one.name])
    longest_stall = 0.0
    async with polled(*simulated) as pollers:
        running = [asyncio.create_task(poller.run()) for poller in pollers]
        try:
            async with asyncio.timeout(BUDGET):
                while min(poller.status.reads for poller in pollers) <= READS:
                    for one in simulated:
                        one.advance(0.25)
                    before = time.monotonic()
                    await asyncio.sleep(0.25)
                    longest_stall = max(longest_stall, time.monotonic() - before - 0.25)
            looked = [(poller, poller.status.up, dict(poller.status.failures)) for poller in pollers]
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
    return pollers, looked, longest_stall


async def test_faulty_switches_do_not_affect_others():
    """A fifth is dead, slow or looping; all others keep their ports, and are read as often as time allows."""
    for _ in range(3):
        simulated = [
            SimulatedSwitch(f"leaf-{number:02d}", ports=SWITCH_PORTS, seed=number) for number in range(TARGETS)
        ]
        ill = {one.name: ILL[place % 3] for place, one in enumerate(simulated[::5])}
        pollers, looked, longest_stall = await poll_fleet(simulated, ill)
        if longest_stall < MAX_STALL:
            break  # else this process had too little of a processor for agents to answer in time
    by_name = {one.name: look for one, look in zip(simulated, looked, strict=True)}
    for name, (poller, up, failures) in by_name.items():
        fault = ill.get(name)
        ports = rows(poller.tables, PORTS)
        if fault is None:
            assert (up, failures) == (True, {}), f"{name}: {poller.status.reason}"
            assert len(ports) == SWITCH_PORTS
            assert all(row["receive_bytes_total"] is not None for row in ports.values())
        elif fault == "dead":
            assert (up, ports) == (False, {})
            assert {reason for _, reason in failures} == {"timeout"}
        elif fault == "looping":
            assert up is True
            assert {reason for _, reason in failures} == {"oid_not_increasing"}
            assert len(ports) == SWITCH_PORTS
    # A dead one gives up after its tries, and a slow one at the deadline: both within their own interval.
    assert all(poller.status.duration < INTERVAL for poller, up, _ in looked if up is False)
    unlabelled = SimpleNamespace(polls=None)
    reported = rows(Health().tables([SimpleNamespace(poller=one, configured=unlabelled) for one in pollers]), SOURCE)
    assert reported.keys() == {(f"target-{name}",) for name in by_name}
    assert {name for name, row in ((key[0], row) for key, row in reported.items()) if not row["up"]} <= {
        f"target-{name}" for name, fault in ill.items() if fault != "looping"
    }


# --- to the byte

SHOWN = {
    f"{way}_{what}_total": f"{way}_{what}"
    for way in ("receive", "transmit")
    for what in ("bytes", "unicast_packets", "multicast_packets", "broadcast_packets", "errors", "discards")
}


@pytest.fixture
def clock(monkeypatch):
    """Replace the monotonic clock of all modules that poll switches by one that the test advances."""

    class Clock:
        now = 5000.0

        def __call__(self):
            return self.now

    made = Clock()
    for name, module in list(sys.modules.items()):
        if name.startswith("exporter.sources.switch.") and hasattr(module, "monotonic"):
            monkeypatch.setattr(module, "monotonic", made)
    return made


async def step(simulated, poller, clock, seconds):
    """Advance the time of switch and exporter; return the tables."""
    simulated.advance(seconds)
    clock.now += seconds
    await poller.poll()
    assert poller.status.up is True, poller.status.reason
    return poller.tables


def wrong(tables, simulated):
    """List values of ports in the tables that differ from what the switch counted."""
    shown, truth = rows(tables, PORTS), simulated.truth()
    assert shown.keys() == {(name,) for name in truth}
    return [
        (name, ending, shown[name,][ending], truth[name].get(what, 0))
        for name in truth
        for ending, what in SHOWN.items()
        if shown[name,][ending] != truth[name].get(what, 0)
    ]


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        *((kind, 15.0) for kind in ("generic", "arista", "sonic", "cumulus", "nxos", "junos")),
        ("onyx", 60.0),  # which refreshes its counters once a minute, and need not be asked more often
    ],
)
async def test_tables_contain_what_the_switch_counted_through_wraps_and_a_reboot(kind, seconds, clock):
    simulated = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    before = simulated.truth()[simulated.ports[0].name]
    async with polled(simulated, interval=4 * seconds, patience=20.0) as (poller,):
        assert wrong(await step(simulated, poller, clock, 1.0), simulated) == []
        for _ in range(12):
            assert wrong(await step(simulated, poller, clock, seconds), simulated) == []
        after = simulated.truth()[simulated.ports[0].name]
        for counter, top in (("receive_errors", 2**32), ("receive_discards", 2**32), ("receive_bytes", 2**64)):
            assert before[counter] < top < after[counter], "the counter ran over meanwhile"
        simulated.reboot(renumber=True)
        clock.now += 30.0
        for _ in range(3):
            assert wrong(await step(simulated, poller, clock, seconds), simulated) == []
    resets = {row["resets_total"] for row in rows(poller.tables, PORTS).values()}
    assert resets == {1}


async def test_a_reboot_detected_late_is_a_reset_even_with_higher_counters(clock):
    simulated = SimulatedSwitch("leaf-01", ports=8)
    simulated.reboot()
    async with polled(simulated, interval=600.0, patience=20.0) as (poller,):
        await step(simulated, poller, clock, 15.0)
        await step(simulated, poller, clock, 15.0)
        simulated.reboot()
        simulated.advance(25.0)
        clock.now += 25.0
        tables = await step(simulated, poller, clock, 4.0)
        assert wrong(tables, simulated) == []
        shown = rows(tables, PORTS)
        assert all(row["resets_total"] == 1 for row in shown.values())
        assert all(row.get("transmit_bytes_per_second") is None for row in shown.values())


@pytest.mark.parametrize("fault", ["flapping-port", "degraded-port", "pfc-storm", "uplink-imbalance"])
async def test_no_rate_is_negative_or_above_what_the_link_carries(fault, clock):
    simulated = SimulatedSwitch("leaf-01", ports=8, kind="sonic")
    simulated.begin(fault)
    async with polled(simulated, interval=60.0, patience=20.0) as (poller,):
        for _ in range(8):
            tables = await step(simulated, poller, clock, 15.0)
            ports = rows(tables, PORTS)
            assert ports
            for row in ports.values():
                for ending in ("receive_bytes_per_second", "transmit_bytes_per_second"):
                    rate = row.get(ending)
                    assert rate is None or 0 <= rate <= 400e9 / 8


async def test_temporary_zeros_never_cause_a_negative_rate(clock):
    simulated = SimulatedSwitch("leaf-01", ports=8, kind="sonic")
    simulated.begin("alternating-zeros")
    async with polled(simulated, interval=60.0, patience=20.0) as (poller,):
        for _ in range(8):
            tables = await step(simulated, poller, clock, 15.0)
            ports = rows(tables, PORTS)
            assert ports
            for row in ports.values():
                rates_seen = [row.get(f"{way}_bytes_per_second") for way in ("receive", "transmit")]
                assert all(rate is None or rate >= 0 for rate in rates_seen)


@pytest.mark.parametrize("kind", ["arista", "sonic", "cumulus", "onyx", "nxos"])
async def test_pfc_frames_equal_what_the_switch_counted(kind, clock):
    simulated = SimulatedSwitch("leaf-01", ports=8, kind=kind)
    simulated.begin("pfc-storm")
    async with polled(simulated, interval=240.0, patience=20.0) as (poller,):
        for _ in range(3):
            tables = await step(simulated, poller, clock, 60.0)
    shown = rows(tables, PRIORITIES)
    for name, truth in simulated.truth().items():
        for way in ("receive", "transmit"):
            found = [shown[name, str(priority)][f"{way}_pfc_frames_total"] for priority in range(8)]
            assert found == [truth.get(f"{way}_pfc_frames_{priority}", 0) for priority in range(8)]
    first = simulated.ports[0].name
    assert shown[first, "3"]["receive_pfc_frames_total"] > 100 * shown[first, "3"]["transmit_pfc_frames_total"] > 0


async def test_cached_counters_cause_no_rate_of_zero_or_double(clock):
    """The counters move every 30 s and are read every 10 s; what is shown in between is what was last counted."""
    simulated = SimulatedSwitch("leaf-01", ports=8, kind="sonic", refresh=30.0)
    totals = []
    async with polled(simulated, interval=60.0, patience=20.0) as (poller,):
        for _ in range(12):
            tables = await step(simulated, poller, clock, 10.0)
            totals.append(rows(tables, PORTS)["Ethernet4",]["transmit_bytes_total"])
    steps = [after - before for before, after in pairwise(totals)]
    assert [one > 0 for one in steps] == [False, True, False] * 3 + [False, True]
