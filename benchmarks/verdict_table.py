"""The table of docs/verdicts.md: simulated jobs with a fault each, and what the verdicts on their records are worth.

    python benchmarks/verdict_table.py [layout/feed/case ...]

prints a row of Markdown for each case whose name starts with one of the arguments; all without any. The true loss is
that of the same job without its fault.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from multiprocessing import Pool
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from exporter.meaning.training.verdicts import Judgement, Verdict
from exporter.simulator.training import faults
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.engine import NEVER
from exporter.simulator.training.faults import Event
from exporter.simulator.training.hardware import Variation
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.programs import Layout
from exporter.simulator.training.records import Reporting
from exporter.simulator.training.scenario import Scenario, simulate, true_loss

from verdicts import Replay  # isort: skip

ONSET, LONG_ONSET = 30.0, 100.0
"""Seconds after which a fault begins, in a job of short steps and in one whose steps take 20 seconds, …"""

SECONDS, LONG_SECONDS = 120.0, 300.0
"""… and seconds from then to the end of the job."""

RARE_SECONDS = 600.0
"""The same for a fault in a few of the long steps, or of those of several seconds."""

HANG_SECONDS = 240.0
"""The same for ranks that stop."""

LAYOUTS: Mapping[str, Callable[[], Layout]] = MappingProxyType(
    {
        "ddp": lambda: DistributedDataParallel(32),
        "fsdp": lambda: FullyShardedDataParallel(32),
        "megatron": lambda: Megatron(tensor=8, data=4, stages=2),
        "megatron-1f1b": lambda: Megatron(tensor=8, data=2, stages=4, last_stage=1.3),
        "megatron-interleaved": lambda: Megatron(tensor=8, data=2, stages=4, chunks=2, sequence_parallel=True),
        "context": lambda: Megatron(tensor=2, context=8, data=2, stages=1, micro_batches=4),
        "moe": lambda: Megatron(tensor=1, data=32, experts=16, micro_batches=2),
        "fsdp-300": lambda: FullyShardedDataParallel(16, compute=4.0, layers=300, layer_bytes=40 << 20),
        "ddp-20s": lambda: DistributedDataParallel(32, compute=20.0),
        "megatron-20s": lambda: Megatron(tensor=8, data=4, stages=1, compute=18.0),
        "ddp-256": lambda: DistributedDataParallel(256),
        "fsdp-256": lambda: FullyShardedDataParallel(256),
        "megatron-256": lambda: Megatron(tensor=8, data=16, stages=2),
        "moe-256": lambda: Megatron(tensor=1, data=256, experts=16, micro_batches=2),
    }
)
"""Jobs by name: 16 to 64 ranks, or as many as the name ends with."""

LONG_STEPS = frozenset({"fsdp-300", "ddp-20s", "megatron-20s"})
"""Jobs whose steps take four seconds and more."""

FEEDS: Mapping[str, bool] = MappingProxyType({"arrivals": True, "durations": False})
"""Feeds by name, and whether their records have arrivals."""


class Case(NamedTuple):
    """What happens to a job, and what is right then.

    Attributes:
        verdict: The right verdict; None if any but straggler, network_bound and hang is right.
        names: Ranks or the host that must be named; None if nothing need be.
        faults: Faults that begin at the onset.
        events: What happens in a healthy job.
        variation: How hardware and work vary.
        loss: Share of the records that are lost.
        comes_and_goes: Whether the fault does; then it is right too if nothing is named.
        is_rare: Whether the fault is in a few steps only.
    """

    verdict: Verdict | None
    names: frozenset[str] | None = None
    faults: Callable[[float], Sequence[Event]] = lambda _: ()
    events: Sequence[Event] = ()
    variation: Variation = Variation()
    loss: float = 0.0
    comes_and_goes: bool = False
    is_rare: bool = False


STRAGGLER, NETWORK, HANG = Verdict.STRAGGLER, Verdict.NETWORK, Verdict.HANG
ALARMS = frozenset({STRAGGLER, NETWORK, HANG})
RANK, HOST = frozenset({"3"}), frozenset({"gpu-001"})


def _late(share: float, every: int = 1, on: float = NEVER) -> Callable[[float], Sequence[Event]]:
    """Return a rank that is late by a share of the computing of its steps."""
    period = NEVER if on == NEVER else 4 * on
    return lambda onset: [faults.SlowRank(rank=3, share=share, every=every, since=onset, on=on, period=period)]


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "healthy": Case(None),
        "GPUs differ by 1.5 %": Case(None, variation=Variation(gpus=0.015)),
        "30 % of records lost": Case(None, loss=0.3),
        "a stall in each 50th step": Case(None, events=[faults.Stall(seconds=1.0, every=50, ranks=(7,))]),
        "checkpoints of rank 0": Case(None, events=[faults.Stall(seconds=5.0, every=40, ranks=(0,))]),
        "work that moves": Case(None, events=[faults.RotatingWork(share=0.2, steps=5, ranks=1)]),
        "compilation": Case(None, events=[faults.Compilation(steps=3, factor=8)]),
        "rank late by 5 %": Case(STRAGGLER, RANK, _late(0.06)),
        "rank late by 10 %": Case(STRAGGLER, RANK, _late(0.12)),
        "rank late by 30 %": Case(STRAGGLER, RANK, _late(0.3)),
        "rank late by 10 %, 30 % lost": Case(STRAGGLER, RANK, _late(0.12), loss=0.3),
        "rank late in each 5th step": Case(STRAGGLER, RANK, _late(0.5, every=5), is_rare=True),
        "rank late for 30 s of 120 s": Case(STRAGGLER, RANK, _late(0.2, on=30.0), comes_and_goes=True),
        "two late ranks": Case(
            STRAGGLER,
            frozenset({"3", "13"}),
            lambda onset: [faults.SlowRank(rank=rank, share=0.12, since=onset) for rank in (3, 13)],
        ),
        "slow host": Case(STRAGGLER, HOST, lambda onset: [faults.SlowHost(host=1, share=0.15, since=onset)]),
        "network at 40 %": Case(NETWORK, None, lambda onset: [faults.SlowNetwork(share=0.4, since=onset)]),
        "an adapter at 25 %": Case(
            NETWORK, None, lambda onset: [faults.SlowAdapter(place=5, share=0.25, host=1, since=onset)]
        ),
        "a rail at 40 ± 25 %": Case(
            NETWORK, None, lambda onset: [faults.SlowAdapter(place=5, share=0.4, variation=0.25, since=onset)]
        ),
        "rank stops": Case(HANG, frozenset({"5"}), lambda onset: [faults.StoppedRank(rank=5, at=onset)]),
        "adapter dead": Case(HANG, frozenset(), lambda onset: [faults.DeadAdapter(host=0, place=5, at=onset)]),
    }
)
"""Cases by name."""


class Row(NamedTuple):
    """Results of a case.

    Attributes:
        right: Share of the time with the right verdict and names, after the first one; for a healthy job, of all time.
        wrong: Share of the time with a wrong alarm or name.
        first: Seconds from the onset to the first right one; None if there was none.
        loss: Middle loss stated; None if there was no straggler.
        true: The loss that is true from the onset on.
    """

    right: float
    wrong: float
    first: float | None
    loss: float | None
    true: float | None


def run(case: Case, layout: str, *, arrivals: bool) -> Row:
    """Simulate a job, replay its records, and compare the verdicts with the truth."""
    is_long = layout.endswith("-20s")
    onset = LONG_ONSET if is_long else ONSET
    lasting = HANG_SECONDS if case.verdict is HANG else LONG_SECONDS if is_long or case.comes_and_goes else SECONDS
    if case.is_rare and layout in LONG_STEPS:
        lasting = RARE_SECONDS
    scenario = Scenario(
        LAYOUTS[layout](),
        onset + lasting,
        [*case.events, *case.faults(onset)],
        variation=case.variation,
        reporting=Reporting(loss=case.loss, arrivals=arrivals),
    )
    records = simulate(scenario).records
    given = [(one.time, one.judgement) for one in Replay().judgements(records, scenario.seconds)]
    marks = [(time, _is_right(case, found), _is_wrong(case, found), found) for time, found in given]
    firsts = [time for time, right, _, _ in marks if right]
    after = (
        [right or (case.comes_and_goes and not wrong) for time, right, wrong, _ in marks if time >= firsts[0]]
        if firsts
        else []
    )
    losses = [found.loss for _, right, _, found in marks if right and found.verdict is STRAGGLER]
    return Row(
        sum(after) / max(len(after), 1),
        sum(wrong for _, _, wrong, _ in marks) / max(len(marks), 1),
        firsts[0] - onset if firsts else None,
        median(losses) if losses else None,
        true_loss(scenario, onset) if case.verdict is STRAGGLER and not case.comes_and_goes else None,
    )


def _named(found: Judgement) -> frozenset[str]:
    is_host = found.verdict is STRAGGLER and found.hosts
    return frozenset(found.hosts) if is_host else frozenset(one.rank for one in found.ranks)


def _is_right(case: Case, found: Judgement) -> bool:
    if case.verdict is None:
        return found.verdict not in ALARMS
    return found.verdict is case.verdict and (case.names is None or _named(found) == case.names)


def _is_wrong(case: Case, found: Judgement) -> bool:
    if case.verdict is HANG and found.verdict is HANG and not found.ranks:
        return False  # no rank is named
    if case.names and found.verdict is STRAGGLER and _named(found) < case.names:
        return False  # not all of them yet
    return found.verdict in ALARMS and not _is_right(case, found)


def _row(job: tuple[str, str, str]) -> str:
    layout, feed, name = job
    found = run(CASES[name], layout, arrivals=FEEDS[feed])
    cells = [
        f"{found.right:.0%}",
        f"{found.wrong:.1%}",
        "" if CASES[name].verdict is None else "never" if found.first is None else f"{found.first:.0f} s",
        "" if found.loss is None else f"{found.loss:.3f}",
        "" if found.true is None else f"{found.true:.3f}",
    ]
    return f"| {layout} | {feed} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    wanted = tuple(sys.argv[1:]) or ("",)
    every = product(LAYOUTS, FEEDS, CASES)
    jobs = [job for job in every if "/".join(job).startswith(wanted)]
    print("| job | feed | case | right | wrong | first after | loss stated | loss true |")
    print("|---|---|---|---|---|---|---|---|")
    with Pool(2) as workers:
        for row in workers.imap(_row, jobs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
