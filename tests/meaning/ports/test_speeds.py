"""Stated speeds that the traffic disproves, and impossible ones, through all steps of a source."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.core import vocabulary
from exporter.core.definition import SourceSteps
from exporter.core.poller import Poller
from exporter.core.source import Reading
from exporter.core.table import Column, RowKeeper, Samples, Table
from exporter.daemon import pipeline
from exporter.daemon.pipeline import Expectation
from exporter.meaning.ports import links, rates, speeds, states
from exporter.sources.bursts.metrics import SCHEMA as BURSTS
from exporter.sources.ibfabric.metrics import PORTS as IB_PORTS
from exporter.sources.nic.metrics import SCHEMA as NIC
from exporter.sources.rdma.metrics import SCHEMA as RDMA
from exporter.sources.switch.metrics import PORTS

NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis without deadlines: a slow machine is not a failure."""

RATE, SHARE = "receive_bytes_per_second", "receive_utilization_ratio"
SPEED, EXPECTED, DEGRADED = vocabulary.SPEED, vocabulary.EXPECTED_SPEED, links.DEGRADED
TEN_MB, FORTY_GB, FIFTY_GB = 10e6 / 8, 40e9 / 8, 50e9
LINK = 1.6e12 / 8
INTERVAL = 15.0


@dataclass
class Port:
    """A port: the speed that it states, and its count of bytes, which `carry` raises."""

    stated: float | None
    count: int = 0
    width: int = 64
    members: int | None = 1
    kind: str | None = None
    up: int = 1
    present: bool = True


@dataclass
class Bench:
    """The steps of a source, on tables of ports of one kind."""

    ports: dict[str, Port]
    schema: object = PORTS
    now: float = 1000.0
    expected: Expectation = field(default_factory=Expectation)

    def __post_init__(self):
        self.name, self.target, self.interval, self.changed, self.settings = "bench", "", INTERVAL, None, ()
        self.keeper = RowKeeper(self.schema.labels)
        self.poller = Poller(self, pipeline.steps(self.expected, SourceSteps()))
        self.states = states.PortStateMemory()

    async def applies(self):
        return True

    async def close(self):
        """Nothing is open."""

    def key(self, name):
        return {1: (name,), 2: ("leaf" if "switch" in self.schema.labels else name, name)}[len(self.schema.labels)]

    async def read(self):
        ports = {name: port for name, port in self.ports.items() if port.present}
        metrics = self.schema.metrics
        width = next(iter(ports.values())).width
        columns = {
            SPEED: [port.stated if port.up else None for port in ports.values()],
            "link_up": [port.up for port in ports.values()],
            "receive_bytes_total": [port.count % (1 << port.width) for port in ports.values()],
            "transmit_bytes_total": [0] * len(ports),
        }
        table = Table(
            self.schema,
            self.keeper.rows([self.key(name) for name in ports]),
            {ending: Column(metrics[ending], values, width) for ending, values in columns.items()},
            self.now,
            kinds=[port.kind for port in ports.values()],
            members=[port.members for port in ports.values()],
        )
        return Reading([table])

    def poll(self, seconds=INTERVAL, **carried):
        """Carry bytes per second by port, read, and return the values of each port by ending."""
        self.now += seconds
        for name, rate in carried.items():
            self.ports[name].count += round(rate * seconds)
        asyncio.run(self.poller.poll())
        assert self.poller.status.up, self.poller.status.detail
        found = {name: {} for name in self.ports}
        (table,) = [one for one in self.poller.tables if one.schema is self.schema]
        for place, key in enumerate(table.rows.keys):
            found[key[-1]] = {
                ending: column.values[place]
                for ending, column in table.columns.items()
                if column.values[place] is not None
            }
        self.active = {one.kind for one in states.step(self.states, self.poller.tables, "host", self.now)}
        return found

    def reasons(self):
        """Return the failures so far by port and reason."""
        return self.poller.status.failures


def test_a_bundle_that_carries_more_than_it_states_keeps_its_rate_and_loses_its_speed():
    """PortChannel1 of the recording: 40 Gb/s stated, 150 GB/s carried."""
    bench = Bench({"Po1": Port(FORTY_GB, members=None)})
    bench.poll()
    for _ in range(2):  # a single impossible value is an error of the device
        found = bench.poll(Po1=150e9)["Po1"]
        assert found[SPEED] == FORTY_GB
        assert RATE not in found
    for _ in range(5):
        found = bench.poll(Po1=150e9)["Po1"]
        assert found[RATE] == pytest.approx(150e9)
        assert not found.keys() & {SPEED, SHARE, DEGRADED}
        assert "link_full" not in bench.active
    assert bench.reasons() == {("Po1", speeds.DISPROVED): 5}


@pytest.mark.parametrize("schema", [PORTS, NIC, RDMA, IB_PORTS], ids=lambda one: one.prefix)
@pytest.mark.parametrize(("stated", "carried"), [(1.41e9 / 8, 2.8e9 / 8), (1.25, 1e9), (TEN_MB, 1e8)])
def test_a_utilization_above_one_ends_in_every_kind_of_table(schema, stated, carried):
    bench = Bench({"p": Port(stated)}, schema)
    bench.poll()
    found = [bench.poll(p=carried)["p"] for _ in range(4)]
    assert [one.get(SPEED) for one in found] == [stated, stated, None, None]
    assert [one.get(RATE) for one in found[2:]] == [pytest.approx(carried)] * 2
    assert not any(SHARE in one for one in found[2:])
    assert bench.reasons() == {(":".join(bench.key("p")[schema.labels[0] == "switch" :]), speeds.DISPROVED): 2}


@pytest.mark.parametrize(
    ("members", "carried", "is_believed"),
    [
        (1, 1.0999 * FIFTY_GB, True),
        (1, 1.1001 * FIFTY_GB, False),
        (1, 0.999 * LINK, False),
        (1, 1.001 * LINK, True),
        (4, 3.999 * LINK, False),
        (4, 4.001 * LINK, True),
        (None, 63.9 * LINK, False),
        (None, 64.1 * LINK, True),
    ],
)
def test_the_thresholds(members, carried, is_believed):
    bench = Bench({"p": Port(FIFTY_GB, members=members)})
    bench.poll()
    found = [bench.poll(p=carried)["p"] for _ in range(6)]
    assert (found[-1].get(SPEED) == FIFTY_GB) is is_believed
    assert is_believed or found[-1][RATE] == pytest.approx(carried)


def test_three_intervals_running_are_needed():
    bench = Bench({"p": Port(FIFTY_GB)})
    bench.poll()
    for _ in range(5):
        bench.poll(p=60e9)
        bench.poll(p=60e9)
        assert bench.poll(p=54e9)["p"][SPEED] == FIFTY_GB
    assert bench.reasons() == {}


def test_an_impossible_value_is_dropped_and_disproves_nothing_before_and_after():
    bench = Bench({"p": Port(FIFTY_GB)})
    bench.poll()
    for _ in range(4):
        bench.poll(p=60e9)
        bench.poll(p=60e9)
        found = bench.poll(p=20 * LINK)["p"]
        assert RATE not in found
        assert found[SPEED] == FIFTY_GB
    for _ in range(3):
        bench.poll(p=60e9)
    found = bench.poll(p=2 * LINK)["p"]  # the speed is disproved now: what no link carries is an error all the same
    assert not found.keys() & {RATE, SPEED}
    assert bench.poll(p=60e9)["p"][RATE] == pytest.approx(60e9)


def test_a_new_stated_speed_is_believed_at_once():
    bench = Bench({"p": Port(TEN_MB)})
    bench.poll()
    for _ in range(4):
        bench.poll(p=1e9)
    bench.ports["p"].stated = FIFTY_GB
    found = bench.poll(p=1e9)["p"]
    assert (found[SPEED], found[SHARE]) == (FIFTY_GB, pytest.approx(0.02))


def test_a_speed_is_believed_again_after_an_hour_below_it_and_not_after_a_link_flap():
    bench = Bench({"p": Port(TEN_MB)})
    bench.poll()
    for _ in range(3):
        bench.poll(p=1e9)
    bench.ports["p"].up = 0
    bench.poll()
    bench.ports["p"].up = 1
    for _ in range(57):
        assert SPEED not in bench.poll(60.0, p=TEN_MB)["p"]
    bench.poll(60.0, p=1.01 * TEN_MB)  # the hour begins again
    for _ in range(59):
        assert SPEED not in bench.poll(60.0, p=TEN_MB)["p"]
    assert bench.poll(60.0, p=TEN_MB)["p"][SPEED] == TEN_MB


def test_a_port_that_is_missing_for_a_poll_stays_disproved_and_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(speeds, "MAX_KEPT", 3)
    ports = {f"p{number}": Port(TEN_MB) for number in range(6)}
    bench = Bench({"first": Port(None), **ports})
    bench.poll()
    for _ in range(3):
        bench.poll(**dict.fromkeys(ports, 1e9))
    for port in ports.values():
        port.present = False
    bench.poll()
    for port in ports.values():
        port.present = True
    found = bench.poll(**dict.fromkeys(ports, 1e9))
    assert sorted(SPEED in found[name] for name in ports) == [False] * 3 + [True] * 3
    for port in ports.values():
        port.present = False
    bench.poll(4000.0)
    (kept,) = [one for one in bench.poller._step_states.values() if isinstance(one, speeds.SpeedState)]
    assert kept.doubts == {}


def test_an_impossible_speed_is_dropped_at_once_and_is_no_expectation():
    """xe2 of the recording: ifHighSpeed in b/s gives 100 Tb/s."""
    ports = {name: Port(FIFTY_GB, kind="uplink") for name in ("a", "b")} | {"xe2": Port(12.5e12, kind="uplink")}
    bench = Bench(ports)
    found = bench.poll()
    assert SPEED not in found["xe2"]
    assert [(found[name][EXPECTED], found[name][DEGRADED]) for name in ("a", "b")] == [(FIFTY_GB, 0)] * 2
    assert DEGRADED not in found["xe2"]
    found = bench.poll(xe2=1e7)
    assert found["xe2"][RATE] == pytest.approx(1e7)
    assert SHARE not in found["xe2"]
    assert bench.reasons() == {("xe2", speeds.IMPOSSIBLE): 2}


def test_the_highest_speed_that_is_possible():
    ports = {"port": Port(LINK), "more": Port(LINK * 1.01), "bundle": Port(LINK * 64, members=None)}
    ports |= {"four": Port(LINK * 4, members=4), "above": Port(LINK * 4.01, members=4)}
    found = Bench(ports).poll()
    assert {name for name, one in found.items() if SPEED in one} == {"port", "bundle", "four"}


def test_siblings_that_carry_more_than_they_state_are_no_expectation():
    wrong = {name: Port(FIFTY_GB, kind="uplink") for name in ("w1", "w2")}
    honest = {name: Port(FIFTY_GB / 2, kind="uplink") for name in ("h1", "h2")}
    bench = Bench({**wrong, **honest})
    assert bench.poll()["h1"][DEGRADED] == 1
    found = bench.poll(w1=60e9, w2=60e9)
    assert [found[name][DEGRADED] for name in ("h1", "h2")] == [0, 0]


# Whatever honest counters do, their speed stays.


class Meter:
    """The step alone, on one port whose counter is given."""

    def __init__(self):
        self.keeper, self.state = RowKeeper(PORTS.labels), None

    def believes(self, now, count, stated, *, width=64, epoch=1):
        metrics = PORTS.metrics
        columns = {
            SPEED: Column(metrics[SPEED], [stated]),
            "receive_bytes_total": Column(metrics["receive_bytes_total"], [count], width),
        }
        table = Table(PORTS, self.keeper.rows([("leaf", "p")]), columns, now, epochs=[epoch])
        self.state, (out, *_) = speeds.step(self.state, table)
        return out.numbers(SPEED) == [stated]


EVENTS = ("missing", "reset", "restart", "held")

intervals = st.floats(0.2, 300.0)
loads = st.floats(0.0, 1.0)


@NO_DEADLINE
@given(
    st.sampled_from([TEN_MB, 125e6, FIFTY_GB, LINK]),
    st.sampled_from([32, 64]),
    st.lists(
        st.tuples(intervals, loads, st.sampled_from(["", "", "", "missing", "reset", "restart", "held"])), max_size=40
    ),
)
def test_honest_counters_never_lose_their_speed(stated, width, steps):
    """With resets, restarts, missing values and caches; that a counter of 32 bits wraps unseen is no excess."""
    meter, now, count, epoch = Meter(), 0.0, 0, 1
    assert meter.believes(now, count, stated, width=width)
    for seconds, load, event in steps:
        now += 0.0 if event == "held" else seconds
        count += 0 if event == "held" else int(load * stated * seconds)
        if event in {"reset", "restart"}:
            count = int(load * stated * seconds)
        epoch += event == "restart"
        value = None if event == "missing" else count % (1 << width)
        assert meter.believes(now, value, stated, width=width, epoch=epoch)


@NO_DEADLINE
@given(
    st.lists(loads, min_size=2, max_size=30),
    st.dictionaries(st.integers(0, 29), st.sampled_from(["zero", "all ones", "jump"]), max_size=10),
)
def test_values_that_are_wrong_for_a_moment_never_disprove_a_speed(steps, wrong):
    """A device that returns 0, all ones or a count of another port now and then, and is right the next time."""
    meter, now, count = Meter(), 0.0, 10**17
    meter.believes(now, count, FIFTY_GB)
    for place, load in enumerate(steps):
        now, count = now + 5.0, count + int(load * FIFTY_GB * 5)
        value = {"zero": 0, "all ones": 2**64 - 1, "jump": count + 10**15}.get(wrong.get(place, ""), count)
        assert meter.believes(now, value, FIFTY_GB)


@NO_DEADLINE
@given(st.floats(1.15, 1000.0), st.lists(intervals, min_size=3, max_size=10))
def test_traffic_above_a_speed_disproves_it_in_the_third_interval(excess, steps):
    meter, now, count, stated = Meter(), 0.0, 0, 125e6
    meter.believes(now, count, stated)
    results: Sequence[bool] = []
    for seconds in steps:
        now, count = now + seconds, count + int(excess * stated * seconds)
        results = [*results, meter.believes(now, count, stated)]
    assert results == [True, True] + [False] * (len(steps) - 2)


def test_a_narrow_counter_that_wraps_disproves_a_speed_with_the_intervals_between():
    """A Counter32 of a port that states 10 Mb/s and carries 100 MB/s wraps at every third poll."""
    meter, now, count = Meter(), 0.0, 0
    assert meter.believes(now, count, TEN_MB, width=32)
    results = []
    for _ in range(8):
        now, count = now + INTERVAL, count + round(1e8 * INTERVAL)
        results.append(meter.believes(now, count % 2**32, TEN_MB, width=32))
    assert results == [True] * 3 + [False] * 5


def test_the_step_before_rates_is_the_first_of_all_sources():
    made = pipeline.steps(Expectation(), SourceSteps())
    assert made.index(speeds.step) < made.index(rates.step)


def test_while_traffic_disproves_the_link_speed_no_sample_of_bursts_is_counted():
    """A bond of two ports that states the speed of one, and carries up to twice as much."""
    keeper, made = RowKeeper(BURSTS.labels), pipeline.steps(Expectation(), SourceSteps())
    memory, now, count, counted = {}, 1000.0, 0, []
    for load in (0.5, 1.2, 1.2, 1.2, 0.5):
        taken = []
        for _ in range(5):
            now, count = now + 1.0, count + round(load * FIFTY_GB)
            taken.append((now, count, 0, FIFTY_GB))
        columns = {vocabulary.SAMPLES: Column(BURSTS.metrics[vocabulary.SAMPLES], [Samples(tuple(taken))])}
        tables = [Table(BURSTS, keeper.rows([("mlx5_bond_0", "1")]), columns, now)]
        for place, step in enumerate(made):
            out = []
            for table in tables:
                memory[place, table.schema], found = step(memory.get((place, table.schema)), table)
                out += found
            tables = out
        counted.append(tables[0].values("receive_utilization_samples")[0].counts[-1])
    assert counted == [4, 9, 14, 14, 14]
