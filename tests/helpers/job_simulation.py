"""Discrete event simulation of a training job: records of collectives with the ground truth of each run.

It models physics only. A rank computes, arrives at a collective, waits for the last rank, and leaves with all others:
end = last arrival + transfer, and a rank records end - own arrival. So the late rank records the shortest time, and a
slow network lengthens the times of all ranks equally. The ground truth is separate from the records.

A step is M micro-batches through P pipeline stages (forward and backward passes, each with AllReduces of its tensor
group; activations and their gradients pass from stage to stage), then the ReduceScatters of the data groups, one small
AllReduce of all ranks (gradient norm), the optimiser, and the AllGathers. Ranks are numbered as in Megatron: tensor
first, then data, then pipeline. What never happens (a rank hangs, the job is killed first) has the time NEVER, which
sums and maxima propagate to everything that depends on it.

Faults stay with the hardware: ranks and hosts in faults are those of the job's start, and a restart that shuffles
hosts moves them to other ranks. The same seed gives the same records; lost records do not change the events.
"""

import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

NEVER = math.inf

SHARES = {"AllReduce": lambda n: 2 * (n - 1) / n, "ReduceScatter": lambda n: n - 1, "AllGather": lambda n: n - 1}
"""By kind, bytes over the bus for each byte that one rank passes in (nccl-tests), by number of ranks."""


class Record(NamedTuple):
    """Record of one operation on one rank. Send and Recv have no peer and are numbered by each rank separately."""

    job: str
    communicator: str
    kind: str
    sequence: int
    rank_in_comm: int
    n_ranks: int
    nodes: int
    world_rank: int
    host: str
    gpu: int
    size_bytes: int
    duration_us: int


@dataclass(frozen=True)
class Layout:
    """Number of ranks of each dimension, and of a host."""

    tensor: int = 8
    pipeline: int = 4
    data: int = 32
    gpus_per_host: int = 8

    @property
    def ranks(self):
        return self.tensor * self.pipeline * self.data

    @property
    def hosts(self):
        return self.ranks // self.gpus_per_host

    def rank(self, tensor, data, stage):
        return tensor + self.tensor * (data + self.data * stage)


@dataclass(frozen=True)
class Work:
    """Work of a rank in a step: seconds of one micro-batch or one step, bytes of one rank."""

    micro_batches: int = 8
    forward_s: float = 0.055
    backward_s: float = 0.110
    optimizer_s: float = 0.030
    launch_s: float = 20e-6
    """Mean time between two collectives without computing in between."""
    noise: float = 0.03
    """Standard deviation of the logarithm of computing times."""
    tensor_bytes: int = 64 << 20
    tensor_per_pass: int = 1
    activation_bytes: int = 8 << 20
    gradient_bytes: int = 2 << 30
    buckets: int = 2
    sharded: bool = True
    """ReduceScatter and AllGather of the data groups; else one AllReduce of each bucket."""
    grad_norm: bool = True
    schedule: str = "1f1b"


@dataclass(frozen=True)
class Fabric:
    """Bus bandwidth in bytes per second inside a host and between hosts, and the noise of the logarithm of a time."""

    inside: float = 350e9
    between: float = 45e9
    latency_s: float = 20e-6
    noise: float = 0.05


@dataclass(frozen=True)
class Reporting:
    """How records are written: each rank writes at ticks of its own clock, and some are lost."""

    interval_s: float = 1.0
    loss: float = 0.0
    end_noise_s: float = 4e-6
    """Maximum delay with which a rank observes the common end."""
    point_to_point: bool = False
    sampled: bool = False
    """Inspector 2.28 to 2.29: of each communicator only the last operation before each tick."""


@dataclass(frozen=True)
class Fault:
    """A fault during an interval, or intermittently: on_s of every period_s."""

    since: float = 0.0
    until: float = NEVER
    on_s: float = NEVER
    period_s: float = NEVER

    def active(self, time):
        return self.since <= time < self.until and (time - self.since) % self.period_s < self.on_s


@dataclass(frozen=True, kw_only=True)
class SlowRank(Fault):
    """One rank computes longer, by a share of the undisturbed step in every step."""

    kind: ClassVar = "rank"
    rank: int
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowHost(Fault):
    """All ranks of a host compute longer."""

    kind: ClassVar = "host"
    host: int
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowStage(Fault):
    """A pipeline stage has more to compute, in all its replicas."""

    kind: ClassVar = "stage"
    stage: int
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowNetwork(Fault):
    """Transfers between hosts take longer: of the data group of one (tensor, stage), or of all."""

    kind: ClassVar = "network"
    factor: float
    group: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class SlowNic(Fault):
    """Transfers between hosts in which one rank takes part are slower, for all ranks in them."""

    kind: ClassVar = "network"
    rank: int
    factor: float


@dataclass(frozen=True, kw_only=True)
class Imbalance(Fault):
    """Micro-batches differ in length: noise of the logarithm of their work, the same for all that share one."""

    kind: ClassVar = "imbalance"
    noise: float


@dataclass(frozen=True, kw_only=True)
class Hang(Fault):
    """A rank stops arriving at collectives."""

    kind: ClassVar = "hang"
    rank: int


@dataclass(frozen=True)
class Pauses:
    """Every few steps one rank, another each time, stops for a while, as garbage collection does."""

    every_steps: int
    least_s: float = 0.1
    most_s: float = 0.5


@dataclass(frozen=True)
class Restart:
    """The job is killed and restarted with new communicators; optionally on reordered or other hosts."""

    time: float
    pause_s: float = 20.0
    shuffle: bool = False
    replaced: tuple[int, ...] = ()
    """Original hosts that are replaced by spare hosts; their faults go with them."""


@dataclass(frozen=True)
class Scenario:
    """All faults of a job."""

    faults: tuple[Fault, ...] = ()
    pauses: Pauses | None = None
    restarts: tuple[Restart, ...] = ()


class Truth(NamedTuple):
    """Ground truth: fine, rank, host, stage, network, imbalance or hang; with the ranks concerned, if any.

    What comes by turns counts as one, from its first turn.
    """

    kind: str
    world_rank: int | None = None
    host: str | None = None
    since: float = 0.0
    until: float = NEVER


class Group:
    """A communicator: its members as (rank in it, world rank, host, GPU, shift of the rank's clock), and its counts."""

    def __init__(self, communicator, members, tensor=None, stage=None):
        self.communicator, self.members = communicator, members
        self.ranks = [member[1] for member in members]
        self.n_ranks, self.nodes = len(members), len({member[2] for member in members})
        self.place = tensor, stage
        self.sequences = Counter()


def schedule(stages, micro_batches, name="1f1b"):
    """List the passes (stage, forward, micro-batch) of one replica in an order in which each can be computed."""
    batches = range(micro_batches)
    plans = []
    for stage in range(stages):
        first = micro_batches if name == "gpipe" else min(micro_batches, stages - 1 - stage)
        plan = [(True, batch) for batch in batches[:first]]
        for batch in batches[first:]:
            plan += (True, batch), (False, batch - first)
        plans.append(plan + [(False, batch) for batch in batches[micro_batches - first :]])
    done, order = set(), []
    while any(plans):
        for stage, plan in enumerate(plans):
            while plan:
                forward, batch = plan[0]
                source = stage - 1 if forward else stage + 1
                if 0 <= source < stages and (source, forward, batch) not in done:
                    break
                done.add((stage, forward, batch))
                order.append((stage, *plan.pop(0)))
    return order


class Simulation:
    """One job: `batches` yields its records, `truths` the ground truth.

    Attributes:
        made: Records that the ranks wrote.
        lost: Records that were lost.
        steps: Steps that were run, those that a kill or a hang cut short included.
    """

    def __init__(
        self,
        layout=Layout(),
        scenario=Scenario(),
        *,
        work=Work(),
        fabric=Fabric(),
        reporting=Reporting(),
        job="job",
        seed=0,
    ):
        if reporting.sampled and reporting.point_to_point:
            raise ValueError("the versions of Inspector that sample know no point-to-point operations")
        if layout.ranks % layout.gpus_per_host:
            raise ValueError(f"{layout.ranks} ranks do not fill hosts of {layout.gpus_per_host} GPUs")
        self.layout, self.scenario, self.work, self.fabric, self.reporting = layout, scenario, work, fabric, reporting
        self.job = job
        self.made = self.lost = self.steps = 0
        self._chance, self._losses = random.Random(f"{seed} physics"), random.Random(f"{seed} losses")
        self._names = random.Random(f"{seed} names")
        self._pending = defaultdict(list)
        self._order = schedule(layout.pipeline, work.micro_batches, work.schedule)
        self._restarts = sorted(scenario.restarts, key=lambda restart: restart.time)
        self._placements = [list(range(layout.hosts))]
        spare = layout.hosts
        for restart in self._restarts:
            hosts = list(self._placements[-1])
            for host in restart.replaced:
                hosts[hosts.index(host)] = spare
                spare += 1
            if restart.shuffle:
                self._names.shuffle(hosts)
            self._placements.append(hosts)
        self._paused, self._paused_tensor, self._pause_s = None, 0, 0.0
        self._begin(0, 0.0)

    # What is the matter.

    @property
    def truths(self):
        """Ground truths with their times, each from one restart to the next."""
        starts = [0.0] + [restart.time + restart.pause_s for restart in self._restarts]
        ends = [restart.time for restart in self._restarts] + [NEVER]
        found = []
        for fault in self.scenario.faults:
            for life, (start, end) in enumerate(zip(starts, ends, strict=True)):
                since, until = max(start, fault.since), min(end, fault.until)
                if since < until and not self._is_replaced(fault, life):
                    found.append(Truth(fault.kind, *self._affected(fault, life), since, until))
        return tuple(sorted(found, key=lambda truth: truth.since)) or (Truth("fine"),)

    def _is_replaced(self, fault, life):
        """Return whether the host of a fault has been replaced."""
        rank = getattr(fault, "rank", None)
        host = getattr(fault, "host", None) if rank is None else rank // self.layout.gpus_per_host
        return host is not None and host not in self._placements[life]

    def _affected(self, fault, life):
        if isinstance(fault, SlowRank | Hang):
            return self.world_rank(fault.rank, life), self.host(fault.rank // self.layout.gpus_per_host)
        return None, self.host(fault.host) if isinstance(fault, SlowHost) else None

    def world_rank(self, hardware, life):
        """Return the world rank that runs, after a number of restarts, where this rank ran at the start."""
        host, gpu = divmod(hardware, self.layout.gpus_per_host)
        return self._placements[life].index(host) * self.layout.gpus_per_host + gpu

    @staticmethod
    def host(hardware):
        return f"gpu-{hardware:03}"

    @cached_property
    def step_s(self):
        """Seconds of a step without faults and noise."""
        work, fabric = replace(self.work, noise=0.0), replace(self.fabric, noise=0.0)
        quiet = Simulation(self.layout, work=work, fabric=fabric)
        quiet._step()
        return max(quiet._free)

    @cached_property
    def _busy_s(self):
        """Seconds of a step that a rank computes."""
        return self.work.micro_batches * (self.work.forward_s + self.work.backward_s) + self.work.optimizer_s

    # What comes out.

    def batches(self, duration_s):
        """Run the job, and yield (time, new records) at every tick, also without records."""
        interval, number = self.reporting.interval_s, 1
        while number * interval <= duration_s:
            while number * interval > min(self._free):
                self._step()
                if self._stop < NEVER and NEVER in self._free:
                    self._restart()
            yield number * interval, self._release(number)
            number += 1

    def _release(self, number):
        """Return the records that ranks wrote before this tick, rank by rank in any order."""
        records = self._pending.pop(number, [])
        if self.reporting.sampled:
            records = list({(one.world_rank, one.communicator): one for one in records}.values())
        places = list(range(self.layout.ranks))
        self._losses.shuffle(places)
        roll, loss = self._losses.random, self.reporting.loss
        came = [one for one in records if roll() >= loss]
        came.sort(key=lambda one: places[one.world_rank])
        self.made += len(records)
        self.lost += len(records) - len(came)
        return came

    # The life of a job.

    def _begin(self, life, time):
        """Start the job on its hosts: all communicators are new and count from 0."""
        layout, interval = self.layout, self.reporting.interval_s
        self._life = life
        self._stop = self._restarts[life].time if life < len(self._restarts) else NEVER
        self._free = [time] * layout.ranks
        self._sent = {}
        self._shifts = [self._names.random() * interval for _ in range(layout.ranks)]
        tensors, replicas, stages = range(layout.tensor), range(layout.data), range(layout.pipeline)
        rank = layout.rank
        self._tensor_groups = {(s, d): self._group([rank(t, d, s) for t in tensors]) for s in stages for d in replicas}
        self._data_groups = [self._group([rank(t, d, s) for d in replicas], t, s) for s in stages for t in tensors]
        self._pipelines = {(t, d): self._group([rank(t, d, s) for s in stages]) for t in tensors for d in replicas}
        self._world = self._group(range(layout.ranks))
        present = [fault for fault in self.scenario.faults if not self._is_replaced(fault, life)]
        self._network = [fault for fault in present if fault.kind == "network"]
        self._slow = defaultdict(list)
        for fault in present:
            for one in self._slowed(fault):
                self._slow[one].append(fault)

    def _group(self, ranks, tensor=None, stage=None):
        per_host, hosts = self.layout.gpus_per_host, self._placements[self._life]
        return Group(
            f"0x{self._names.getrandbits(64):x}",
            [
                (place, rank, self.host(hosts[rank // per_host]), rank % per_host, self._shifts[rank])
                for place, rank in enumerate(ranks)
            ],
            tensor,
            stage,
        )

    def _slowed(self, fault):
        """Return the world ranks whose computing a fault slows."""
        layout = self.layout
        if isinstance(fault, SlowRank | Hang):
            return [self.world_rank(fault.rank, self._life)]
        if isinstance(fault, SlowHost):
            first = self.world_rank(fault.host * layout.gpus_per_host, self._life)
            return range(first, first + layout.gpus_per_host)
        if isinstance(fault, SlowStage):
            return range(layout.rank(0, 0, fault.stage), layout.rank(0, 0, fault.stage + 1))
        return ()

    def _restart(self):
        """Kill the job, with the records that its ranks had not written, and restart it."""
        interval = self.reporting.interval_s
        for number, records in self._pending.items():
            records[:] = [one for one in records if number * interval - self._shifts[one.world_rank] <= self._stop]
        self._begin(self._life + 1, self._stop + self._restarts[self._life].pause_s)

    # A step.

    def _step(self):
        """Run one step of all ranks, each from the time at which it is free."""
        layout, work = self.layout, self.work
        now = min(self._free)
        self._draw_pause()
        noises = [one.noise for one in self.scenario.faults if isinstance(one, Imbalance) and one.active(now)]
        for replica in range(layout.data):
            lengths = [self._draw(sum(noises)) for _ in range(work.micro_batches)]
            outputs = {}
            for stage, forward, batch in self._order:
                self._pass(stage, replica, forward, batch, lengths[batch], outputs)
        size = work.gradient_bytes // work.buckets
        if work.sharded:
            size //= layout.data
        self._reduce("ReduceScatter" if work.sharded else "AllReduce", size)
        if work.grad_norm and layout.ranks > 1:
            self._free = [self._collective(self._world, "AllReduce", 8, self._launch(self._free))] * layout.ranks
        self._free = [
            self._done(rank, free, work.optimizer_s * self._draw(work.noise)) for rank, free in enumerate(self._free)
        ]
        if work.sharded:
            self._reduce("AllGather", size)
        self.steps += 1

    def _reduce(self, kind, size):
        """Run one collective of the data groups for each bucket."""
        if self.layout.data == 1:
            return
        for group in self._data_groups:
            free = [self._free[rank] for rank in group.ranks]
            for _ in range(self.work.buckets):
                free = [self._collective(group, kind, size, self._launch(free))] * group.n_ranks
            for rank, end in zip(group.ranks, free, strict=True):
                self._free[rank] = end

    def _pass(self, stage, replica, forward, batch, length, outputs):
        """Pass one micro-batch through one stage: receive, and compute up to each AllReduce of the tensor group."""
        work, layout = self.work, self.layout
        first = layout.rank(0, replica, stage)
        ranks = range(first, first + layout.tensor)
        source = stage - 1 if forward else stage + 1
        starts = self._free[first : first + layout.tensor]
        if 0 <= source < layout.pipeline:
            starts = self._receive(stage, source, replica, starts, outputs.pop((source, forward, batch)))
        seconds = (work.forward_s if forward else work.backward_s) * length / work.tensor_per_pass
        disturbed = any(rank in self._slow for rank in ranks)
        gauss, exp, noise = self._chance.gauss, math.exp, work.noise
        for part in range(work.tensor_per_pass):
            lasting = [seconds * exp(noise * gauss(0.0, 1.0)) for _ in ranks]
            if disturbed:
                arrivals = [self._done(*one) for one in zip(ranks, starts, lasting, strict=True)]
            else:
                arrivals = [start + one for start, one in zip(starts, lasting, strict=True)]
            if part == 0 and (stage, replica, forward, batch) == self._paused:
                arrivals[self._paused_tensor] += self._pause_s
            starts = arrivals
            if layout.tensor > 1:
                group = self._tensor_groups[stage, replica]
                starts = [self._collective(group, "AllReduce", work.tensor_bytes, arrivals)] * layout.tensor
        self._free[first : first + layout.tensor] = starts
        outputs[stage, forward, batch] = starts

    def _receive(self, stage, source, replica, posted, ready):
        """Receive from the ranks of the source. Sending is a stream of its own: the source continues to compute.

        Both ends of a pair end together; a pair's next operation in this direction waits for this one.
        """
        ends = []
        for tensor, (post, send) in enumerate(zip(posted, ready, strict=True)):
            group = self._pipelines[tensor, replica]
            begun = max(send, self._sent.get((group.communicator, source, stage), 0.0))
            both = max(begun, post)
            pair = group.ranks[source], group.ranks[stage]
            end = both + self._transfer(group, pair, self.work.activation_bytes, both)
            if end >= self._stop:
                end = NEVER
            self._sent[group.communicator, source, stage] = end
            if self.reporting.point_to_point and end < NEVER:
                self._write(group, "Send", (group.communicator, source), [source], [begun], end)
                self._write(group, "Recv", (group.communicator, stage), [stage], [post], end)
            ends.append(end)
        return ends

    def _collective(self, group, kind, size, arrivals):
        """Run a collective of a group: all leave together, one transfer after the last arrival. Return the end."""
        last = max(arrivals)
        end = last + self._transfer(group, group.ranks, size * SHARES[kind](group.n_ranks), last)
        if end >= self._stop:
            return NEVER
        self._write(group, kind, None, range(group.n_ranks), arrivals, end, size)
        return end

    def _write(self, group, kind, counted, places, arrivals, end, size=None):
        """Record an operation at each of these members, to be read after the next tick of that rank's clock."""
        key = (kind, counted)
        sequence = group.sequences[key]
        group.sequences[key] += 1
        size = self.work.activation_bytes if size is None else size
        job, communicator, n_ranks, nodes = self.job, group.communicator, group.n_ranks, group.nodes
        members, pending, interval = group.members, self._pending, self.reporting.interval_s
        random, late = self._chance.random, self.reporting.end_noise_s
        for index, arrival in zip(places, arrivals, strict=True):
            place, rank, host, gpu, shift = members[index]
            micros = int((end - arrival + late * random()) * 1e6 + 0.5) or 1
            record = Record(job, communicator, kind, sequence, place, n_ranks, nodes, rank, host, gpu, size, micros)
            pending[int((end + shift) / interval) + 1].append(record)

    # Times.

    def _transfer(self, group, ranks, traffic, time):
        """Return the seconds of a transfer between ranks of a group, from the bytes over the bus."""
        fabric = self.fabric
        bandwidth = fabric.inside if group.nodes == 1 else fabric.between
        seconds = (fabric.latency_s + traffic / bandwidth) * self._draw(fabric.noise)
        if group.nodes > 1:
            for fault in self._network:
                if fault.active(time) and self._crosses(fault, group, ranks):
                    seconds *= fault.factor
        return seconds

    def _crosses(self, fault, group, ranks):
        if isinstance(fault, SlowNic):
            return self.world_rank(fault.rank, self._life) in ranks
        return fault.group is None or fault.group == group.place

    def _done(self, rank, start, seconds):
        """Return the time at which a rank has finished computing that takes `seconds` without faults."""
        factor = 1.0
        for fault in self._slow.get(rank, ()):
            if fault.active(start):
                if isinstance(fault, Hang):
                    return NEVER
                factor += fault.share * self.step_s / self._busy_s
        return start + seconds * factor

    def _launch(self, free):
        """Return the arrivals at a collective without computing before it."""
        return [time + self.work.launch_s * self._draw(10 * self.work.noise) for time in free]

    def _draw(self, noise):
        return math.exp(noise * self._chance.gauss(0.0, 1.0))

    def _draw_pause(self):
        """Choose the rank and the pass of this step's pause."""
        pauses, layout = self.scenario.pauses, self.layout
        self._paused = None
        if pauses and self.steps % pauses.every_steps == pauses.every_steps - 1:
            draw = self._chance.randrange
            self._paused = draw(layout.pipeline), draw(layout.data), bool(draw(2)), draw(self.work.micro_batches)
            self._paused_tensor = draw(layout.tensor)
            self._pause_s = self._chance.uniform(pauses.least_s, pauses.most_s)


SCENARIOS = {
    "control": lambda place, layout, share, since: (),
    "rank": lambda place, layout, share, since: (SlowRank(since, rank=place, share=share),),
    "rank by turns": lambda place, layout, share, since: (
        SlowRank(since, on_s=30.0, period_s=60.0, rank=place, share=share),
    ),
    "host": lambda place, layout, share, since: (SlowHost(since, host=place // layout.gpus_per_host, share=share),),
    "stage": lambda place, layout, share, since: (SlowStage(since, stage=place % layout.pipeline, share=share),),
    "network": lambda place, layout, share, since: (SlowNetwork(since, factor=4.0),),
    "network of a group": lambda place, layout, share, since: (
        SlowNetwork(since, factor=4.0, group=(place % layout.tensor, place % layout.pipeline)),
    ),
    "nic": lambda place, layout, share, since: (SlowNic(since, rank=place, factor=4.0),),
    "imbalance": lambda place, layout, share, since: (Imbalance(since, noise=3 * share),),
    "hang": lambda place, layout, share, since: (Hang(since, rank=place),),
}
"""Faults of each scenario, from a rank, the layout, a share of the step and the start time."""


def scenario(name, layout, *, seed=0, share=0.1, since=60.0, pauses=None, restarts=()):
    """Return a simulation of one of SCENARIOS on a rank (or its host, stage or group) chosen by the seed."""
    place = random.Random(f"{seed} place").randrange(layout.ranks)
    return Scenario(SCENARIOS[name](place, layout, share, since), pauses, tuple(restarts))
