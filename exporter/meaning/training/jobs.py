"""Training jobs: tables of stragglers, verdicts, bandwidths and step budgets from the timings of collectives.

The internal table of timings has a row for each rank in each communicator and kind, with the operations since the last
read. An exporter that runs alone on a host sees its own ranks, and its verdicts cover these; a collector sees all ranks
of a job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from exporter.core import vocabulary
from exporter.core.shares import Shares
from exporter.core.table import (
    Column,
    LabelValues,
    Metric,
    RowKeeper,
    Samples,
    Schema,
    Table,
    Value,
)
from exporter.meaning.training import bandwidth, job_kinds, longest, lost_time, past, step_budget
from exporter.meaning.training.alignment import FORGET_SECONDS, Collectives
from exporter.meaning.training.bandwidth import Baseline, Shape
from exporter.meaning.training.durations import DURATIONS
from exporter.meaning.training.link_limits import LinkLimits, Links, expected
from exporter.meaning.training.metrics import JOBS, KINDS, RANKS, VERDICTS
from exporter.meaning.training.records import Job, Stream, Timing, TimingValues, Waits
from exporter.meaning.training.verdicts import (
    JobMemory,
    Judgement,
    Verdict,
    judge,
)

LABELS = ("train_job", "communicator", "collective", "rank")
TIMING_COLUMNS = ("operations", "stream_info")
"""Endings of the columns of the internal table: Samples of Timing, and texts that begin with ranks, nodes, host,
expected, and end with the ports nearest to the rank's GPU."""

PROGRESS = ("begun", "ended")
"""Optional columns: the numbers of collectives of each row that were begun, and ended, so far."""

MAX_RANKS = 65_536
"""Ranks of all jobs of which sums are stored; a host has its share."""

MAX_HOST_RANKS = 1024
"""Ranks of one host: of eight runs of a job with 128 processes."""


class Outputs(NamedTuple):
    """Schemas of the resulting tables.

    By rank, by job, by job and verdict, by job and kind, by job, kind and size class, by job and cause, by job and
    measure, and by planned job.
    """

    ranks: Schema
    jobs: Schema
    verdicts: Schema
    kinds: Schema
    sizes: Schema
    lost: Schema
    pasts: Schema
    budgets: Schema


@dataclass(frozen=True, slots=True)
class JobKnowledge:
    """Configured knowledge about jobs.

    Attributes:
        baseline: Bandwidth of the network as it was measured.
        links: Links of hosts.
        plans: Plans by patterns of job names; the first that matches applies.
    """

    baseline: Baseline = field(default_factory=Baseline)
    links: Links = field(default_factory=Links)
    plans: Sequence[tuple[str, step_budget.Plan]] = ()

    def plan(self, job: str) -> step_budget.Plan | None:
        """Return the plan of a job; None if there is none."""
        return next((plan for pattern, plan in self.plans if fnmatchcase(job, pattern)), None)


@dataclass(slots=True)
class RankSums:
    """Microseconds that a rank waited and was late, the time of its last timing, and its host."""

    host: str
    waited: float = 0.0
    late: float = 0.0
    last_seen: float = 0.0


@dataclass(slots=True)
class TrainingState:
    """What this step keeps between tables. It is changed in place, since it may hold a hundred thousand timings.

    Attributes:
        collectives: Operations of all jobs.
        memories: What verdicts are formed from, by job.
        ranks: Sums by job and rank.
        ranks_by_host: Number of these by host.
        limits: What the links of each job allow.
        lost: GPU-seconds that each job lost.
        pasts: Past of each job.
        meters: Steps of jobs with a plan.
        keepers: Rows of the resulting tables, by the endings of their metrics.
    """

    collectives: Collectives = field(default_factory=Collectives)
    memories: dict[str, JobMemory] = field(default_factory=dict)
    ranks: dict[tuple[str, str], RankSums] = field(default_factory=dict)
    ranks_by_host: Shares[str] = field(default_factory=Shares)
    limits: dict[str, LinkLimits] = field(default_factory=dict)
    lost: dict[str, lost_time.LostTime] = field(default_factory=dict)
    pasts: dict[str, past.Past] = field(default_factory=dict)
    meters: dict[str, step_budget.StepMeter] = field(default_factory=dict)
    keepers: dict[tuple[str, ...], RowKeeper] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def _output_schemas(schema: Schema) -> Outputs | None:
    """Return the schemas made from an internal schema of timings; None for any other schema."""
    if schema.internal and schema.labels == LABELS and all(one in schema.metrics for one in TIMING_COLUMNS):
        return _declare(schema)
    return None


def _declare(schema: Schema) -> Outputs:
    prefix = schema.prefix
    timings = schema.metrics["operations"].origins

    def declared(labels: tuple[str, ...], own: Mapping[str, vocabulary.Ending]) -> Schema:
        return vocabulary.schema(prefix, labels, own=own, origins=dict.fromkeys(own, timings))

    return Outputs(
        declared(("train_job", "rank"), RANKS),
        declared(("train_job",), JOBS),
        declared(("train_job", "verdict"), VERDICTS),
        declared(("train_job", "collective"), KINDS),
        declared(("train_job", "collective", "size_class"), {**DURATIONS, **longest.LONGEST}),
        declared(("train_job", "cause"), lost_time.LOST),
        declared(("train_job", "measure"), past.PASTS),
        vocabulary.schema(
            prefix,
            ("train_job",),
            own={**step_budget.MEASURED, **step_budget.CONFIGURED},
            origins=dict.fromkeys(step_budget.MEASURED, timings)
            | {ending: ["jobs"] for ending in step_budget.CONFIGURED},
        ),
    )


def outputs(schema: Schema) -> list[Metric]:
    """List the metrics that `step` makes from tables of a schema."""
    made = _output_schemas(schema)
    return [] if made is None else [metric for one in made for metric in one.metrics.values()]


def step(
    known: JobKnowledge, state: TrainingState | None, table: Table
) -> tuple[TrainingState | None, Sequence[Table]]:
    """Replace an internal table of timings by the resulting tables; other tables pass unchanged."""
    made = _output_schemas(table.schema)
    if made is None:
        return state, (table,)
    state = TrainingState() if state is None else state
    now = table.time
    for stream, timings, progressed in _streams(table):
        state.collectives.add(stream, timings, now, progressed)
    state.collectives.settle(now)
    _add_sums(state, now)
    jobs = state.collectives.jobs
    state.memories = {name: state.memories.get(name) or JobMemory() for name in jobs}
    state.limits = {name: state.limits.get(name) or LinkLimits() for name in jobs}
    judgements = {
        name: judge(job, state.memories[name], now, _expected(known, name, job, state.limits[name], now))
        for name, job in jobs.items()
    }
    _observe_pasts(state, now)
    _observe_times(state, judgements, now)
    found = [*_tables(state, judgements, made, table), _budgets(known, state, made, table)]
    return state, [one for one in found if len(one.rows)]


def _expected(known: JobKnowledge, name: str, job: Job, limits: LinkLimits, now: float) -> Baseline:
    """Return the expected bandwidth of a job: what was measured, else what its links allow."""
    plan = known.plan(name)
    limits.find(job, known.links, None if plan is None else plan.bandwidth, now)

    def allowed(communicator: str, shape: Shape) -> float | None:
        limit = limits.limits.get(communicator)
        return None if limit is None else expected(shape, limit, known.links.share)

    return replace(known.baseline, allowed=allowed)


def _streams(table: Table) -> Iterable[tuple[Stream, Sequence[TimingValues], tuple[int, int] | None]]:
    """Yield stream, timings and progress of the rows of an internal table."""
    columns = (table.values(ending) or () for ending in TIMING_COLUMNS)
    rows = zip(table.rows.keys, *columns, progress(table), strict=True)
    for (job, communicator, kind, rank), samples, about, reached in rows:
        if isinstance(samples, Samples) and isinstance(about, tuple):
            ranks, nodes, host, expected, *_, ports = about
            stream = Stream(job, communicator, kind, rank, int(ranks), int(nodes or 0), host, int(expected or 0), ports)
            yield stream, samples.taken, reached


def timings(samples: Samples) -> list[Timing]:
    """Return the operations of a row; what is unknown may be left out at the end of each."""
    return [Timing(*one) for one in samples.taken]


def progress(table: Table) -> Iterable[tuple[int, int] | None]:
    """Yield for each row the numbers of collectives begun and ended; None where they are not reported."""
    begun, ended = (table.values(ending) or [None] * len(table.rows) for ending in PROGRESS)
    for one, other in zip(begun, ended, strict=True):
        yield (one, other) if isinstance(one, int) and isinstance(other, int) else None


def _add_sums(state: TrainingState, now: float) -> None:
    """Add the operations settled now to the sums of ranks, and drop ranks without recent timings."""
    for name, job in state.collectives.jobs.items():
        found, job.waits = job.waits, Waits()
        present: dict[str, float] = {}
        for communicator in job.communicators.values():
            if communicator.ticks and communicator.ticks[-1].time == now:
                present |= communicator.members
        for rank in present:
            sums = state.ranks.get((name, rank))
            if sums is None:
                host = job.hosts.get(rank, "")
                if not state.ranks_by_host.has_room(host, MAX_RANKS, MAX_HOST_RANKS):
                    continue
                state.ranks_by_host.add(host)
                sums = state.ranks[name, rank] = RankSums(host)
            sums.waited += found.waited.get(rank, 0.0)
            sums.late += found.late.get(rank, 0.0)
            sums.last_seen = now
    for key in [key for key, sums in state.ranks.items() if now - sums.last_seen > FORGET_SECONDS]:
        state.ranks_by_host.remove(state.ranks.pop(key).host)


def _observe_pasts(state: TrainingState, now: float) -> None:
    """Compare jobs with their own past; several jobs of one name have none."""
    jobs = state.collectives.jobs
    state.pasts = {name: state.pasts.get(name) or past.Past() for name in jobs}
    for name, job in jobs.items():
        if job.claims.runs(now) <= 1:
            past.observe(state.pasts[name], job, state.memories[name].laps.steps, now)


def _observe_times(state: TrainingState, judgements: Mapping[str, Judgement], now: float) -> None:
    """Observe how long collectives took, and add the time that jobs lost."""
    jobs = state.collectives.jobs
    state.lost = {name: state.lost.get(name) or lost_time.LostTime() for name in jobs}
    for name, job in jobs.items():
        memory = state.memories[name]
        longest.observe(memory.times, job, now)
        lost_time.add(state.lost[name], job, judgements[name], memory.laps.steps.seconds, now)


def _tables(state: TrainingState, judgements: Mapping[str, Judgement], made: Outputs, table: Table) -> list[Table]:
    jobs = state.collectives.jobs
    now = table.time
    blamed = {
        (name, suspect.rank): suspect.loss
        for name, judgement in judgements.items()
        if judgement.verdict in (Verdict.STRAGGLER, Verdict.HANG)
        for suspect in judgement.ranks
    }
    known = {name for name, judgement in judgements.items() if judgement.verdict is not Verdict.UNKNOWN}
    ranks = state.ranks
    bandwidths = bandwidth.by_kind(jobs)
    lost = {(name, one.value): seconds for name, of in state.lost.items() for one, seconds in of.seconds.items()}
    regressions = {(name, measure): one for name, of in state.pasts.items() for measure, one in of.regressions.items()}
    return [
        _table(
            state,
            made.ranks,
            ranks,
            {
                "wait_seconds_total": [one.waited / 1e6 for one in ranks.values()],
                "lateness_seconds_total": [one.late / 1e6 for one in ranks.values()],
                "straggler": [int(key in blamed) if key[0] in known else None for key in ranks],
                "straggler_loss_ratio": [blamed.get(key) for key in ranks],
            },
            table,
        ),
        _table(
            state,
            made.jobs,
            [(name,) for name in jobs],
            _job_columns(state, judgements, now),
            table,
        ),
        _table(
            state,
            made.verdicts,
            [(name, verdict.value) for name in jobs for verdict in Verdict],
            {"verdict": [int(judgements[name].verdict is verdict) for name in jobs for verdict in Verdict]},
            table,
        ),
        _table(state, made.kinds, bandwidths, {"bus_bandwidth_bytes_per_second": list(bandwidths.values())}, table),
        _sizes(state, made.sizes, table),
        _table(state, made.lost, lost, {"lost_gpu_seconds_total": list(lost.values())}, table),
        _table(state, made.pasts, regressions, {"regression_ratio": list(regressions.values())}, table),
    ]


def _sizes(state: TrainingState, schema: Schema, table: Table) -> Table:
    """Return the table of the times of collectives."""
    jobs = state.collectives.jobs
    histograms = {(name, *key): one for name, job in jobs.items() for key, one in job.durations.histograms().items()}
    ratios = {(name, *key): one for name in jobs for key, one in longest.ratios(state.memories[name].times).items()}
    columns: dict[str, Sequence[Value | None]] = {
        "collective_transfer_seconds": list(histograms.values()),
        "collective_longest_ratio": [ratios.get(key) for key in histograms],
    }
    return _table(state, schema, histograms, columns, table)


def _job_columns(
    state: TrainingState, judgements: Mapping[str, Judgement], now: float
) -> dict[str, Sequence[Value | None]]:
    """Return the values of jobs by metric."""
    jobs = state.collectives.jobs
    return {
        "matched_collectives_total": [job.matched for job in jobs.values()],
        "partial_collectives_total": [job.partial for job in jobs.values()],
        "unmatched_collectives_total": [job.unmatched for job in jobs.values()],
        "dropped_collectives_total": [job.dropped + job.late for job in jobs.values()],
        "matched_ranks_ratio": [judgements[name].matched for name in jobs],
        "job_runs": [job.claims.runs(now) for job in jobs.values()],
        "arrivals_ratio": [judgements[name].arrivals for name in jobs],
        "verdict_seconds": [now - state.memories[name].since for name in jobs],
        "waited_ratio": [judgements[name].loss for name in jobs],
        "network_ratio": [judgements[name].bandwidth for name in jobs],
        "step_interval_seconds": [state.pasts[name].step for name in jobs],
        "job_info": [job_kinds.kind_of(name, job) for name, job in jobs.items()],
    }


def _budgets(known: JobKnowledge, state: TrainingState, made: Outputs, table: Table) -> Table:
    """Measure the steps of jobs with a plan, and return their table."""
    plans = {name: plan for name in state.collectives.jobs if (plan := known.plan(name)) is not None}
    before = state.meters
    state.meters = {
        name: before[name] if name in before and before[name].plan == plan else step_budget.StepMeter(plan)
        for name, plan in plans.items()
    }
    rows = []
    for name, meter in state.meters.items():
        meter.add(state.collectives.jobs[name], table.time)
        found = step_budget.budget(meter.plan, meter.measured(table.time))
        rows.append(((name,), step_budget.values(meter.plan, found)))
    columns = {
        ending: [exported[ending] for _, exported in rows]
        for ending in (*step_budget.MEASURED, *step_budget.CONFIGURED)
    }
    return _table(state, made.budgets, [key for key, _ in rows], columns, table)


def _table(
    state: TrainingState,
    schema: Schema,
    keys: Iterable[LabelValues],
    values: Mapping[str, Sequence[Value | None]],
    table: Table,
) -> Table:
    columns = {ending: Column(schema.metrics[ending], cells) for ending, cells in values.items()}
    keeper = state.keepers.setdefault(tuple(schema.metrics), RowKeeper(schema.labels))
    return Table(schema, keeper.rows(list(keys)), columns, table.time, part=table.part)
