"""A job whose steps all do the same, judged at each tick of virtual time.

The job has two ranks on each host. A step computes and exchanges activations in tensor groups inside the hosts, and
then sums gradients between the hosts; the truth is the time of a step, and how long the sums take.
"""

import random
from dataclasses import dataclass, field
from functools import partial

from exporter.meaning.training import jobs
from exporter.sources.nccl.streams import StreamTableBuilder

MIB = 1 << 20
TICK = 5.0
MINUTE = 60.0


@dataclass(frozen=True)
class Work:
    """Seconds of a step, and of each of its sums between hosts; their number and size; operations of tensor groups."""

    step: float = 0.5
    network: float = 0.1
    sums: int = 1
    size: int = 512 * MIB
    inside: int = 8
    nodes: int = 2

    def groups(self, run):
        """Yield name, ranks, nodes, operations of a step, their bytes and microseconds."""
        for host in range(self.nodes):
            members = (2 * host, 2 * host + 1)
            yield f"tensor {host} of {run}", members, 1, self.inside, 8 * MIB, 300.0
        for place in range(2):
            members = tuple(range(place, 2 * self.nodes, 2))
            took = self.network / max(self.sums, 1) * 1e6
            yield f"data {place} of {run}", members, self.nodes, self.sums, self.size, took


@dataclass
class Job:
    """A job that is judged at each tick."""

    name: str = "llm"
    step: object = staticmethod(partial(jobs.step, jobs.JobKnowledge()))
    ports: str = ""
    now: float = 1000.0
    state: object = None
    run: int = 0
    done: dict = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    values: dict = field(default_factory=dict)
    peak: dict = field(default_factory=dict)

    def works(self, work, minutes):
        """Do steps; return the values at the end, and keep the highest ratios in between."""
        end, at, self.peak = self.now + minutes * MINUTE, self.now, {}
        while self.now < end:
            steps = 0
            while at < self.now + TICK:
                at += work.step * self.chance.gauss(1, 0.03)
                steps += 1
            self.tick(work, steps)
        return self.values

    def tick(self, work=None, steps=0):
        made = StreamTableBuilder()
        self.now += TICK
        for name, members, nodes, count, size, took in work.groups(self.run) if work and steps else ():
            first = self.done.get(name, 0)
            self.done[name] = first + count * steps
            for rank in members if count else ():
                key = (self.name, name, "AllReduce", str(rank))
                operations = [(n, size, took * self.chance.gauss(1, 0.03), True) for n in range(first, self.done[name])]
                made.add(
                    key,
                    operations,
                    ranks=len(members),
                    nodes=nodes,
                    host=f"gpu-{rank // 2}",
                    expected=len(members),
                    ports=self.ports,
                )
        self.state, tables = self.step(self.state, made.table(self.now))
        self.values = {
            (column.metric.ending, *key): value
            for table in tables
            for column in table.columns.values()
            for key, value in zip(table.rows.keys, column.values, strict=True)
        }
        for key, value in self.values.items():
            if key[0] == "regression_ratio":
                self.peak[key[2]] = max(value, self.peak.get(key[2], 0.0))

    def pauses(self, minutes):
        self.peak, end = {}, self.now + minutes * MINUTE
        while self.now < end:
            self.tick()
        return self.values

    def restarts(self):
        self.run += 1

    @property
    def regression(self):
        return {key[2]: value for key, value in self.values.items() if key[0] == "regression_ratio"}
