"""The table of docs/verdicts.md: simulated jobs with a fault each, and what the verdicts on their records are worth.

    python benchmarks/verdict_table.py [layout/case ...]

prints a row of Markdown for each case whose name starts with one of the arguments; all without any. The true loss is
that of the same job without its fault.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import Pool
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from exporter.meaning.training.verdicts import Judgement, Verdict
from exporter.simulator.training import faults
from exporter.simulator.training.data_parallel import DistributedDataParallel, FullyShardedDataParallel
from exporter.simulator.training.faults import Event
from exporter.simulator.training.hardware import Variation
from exporter.simulator.training.megatron import Megatron
from exporter.simulator.training.programs import Layout
from exporter.simulator.training.records import Reporting
from exporter.simulator.training.scenario import Scenario, simulate, true_loss

from verdicts import Replay  # isort: skip

SECONDS = 120.0
"""Seconds of a case, and …"""

LONG_SECONDS = 300.0
"""… of one whose steps take 20 seconds."""

ONSET = 30.0
"""Seconds after which a fault that begins late begins."""

LAYOUTS: Mapping[str, Callable[[], Layout]] = MappingProxyType(
    {
        "ddp": lambda: DistributedDataParallel(32),
        "ddp-20s": lambda: DistributedDataParallel(32, compute=20.0),
        "fsdp": lambda: FullyShardedDataParallel(32),
        "fsdp-300": lambda: FullyShardedDataParallel(16, compute=4.0, layers=300, layer_bytes=40 << 20),
        "megatron": lambda: Megatron(tensor=8, data=4, stages=2),
        "megatron-1f1b": lambda: Megatron(tensor=8, data=2, stages=4, last_stage=1.3),
        "megatron-interleaved": lambda: Megatron(tensor=8, data=2, stages=4, chunks=2, sequence_parallel=True),
        "megatron-20s": lambda: Megatron(tensor=8, data=4, stages=1, compute=18.0),
        "context": lambda: Megatron(tensor=2, context=8, data=2, stages=1, micro_batches=4),
        "moe": lambda: Megatron(tensor=1, data=32, experts=16, micro_batches=2),
    }
)
"""Jobs by name: 16 to 64 ranks."""


class Case(NamedTuple):
    """What happens to a job, and what is right then.

    Attributes:
        verdict: The right verdict; None if any but straggler, network_bound and hang is right.
        names: Ranks or the host that must be named; None if nothing need be.
        events: Faults, and events of healthy jobs.
        variation: How hardware and work vary.
        reporting: How ranks report.
        onset: Seconds after which the fault begins.
    """

    verdict: Verdict | None
    names: tuple[str, ...] | None = None
    events: Sequence[Event] = ()
    variation: Variation = Variation()
    reporting: Reporting = Reporting()
    onset: float = 0.0


STRAGGLER, NETWORK, HANG = Verdict.STRAGGLER, Verdict.NETWORK, Verdict.HANG
ALARMS = frozenset({STRAGGLER, NETWORK, HANG})

CASES: Mapping[str, Case] = MappingProxyType(
    {
        "healthy": Case(None),
        "GPUs differ by 1.5 %": Case(None, variation=Variation(gpus=0.015)),
        "30 % of records lost": Case(None, reporting=Reporting(loss=0.3)),
        "a stall in each 50th step": Case(None, events=[faults.Stall(seconds=1.0, every=50, ranks=(7,))]),
        "checkpoints of rank 0": Case(None, events=[faults.Stall(seconds=5.0, every=40, ranks=(0,))]),
        "work that moves": Case(None, events=[faults.RotatingWork(share=0.2, steps=5, ranks=1)]),
        "compilation": Case(None, events=[faults.Compilation(steps=3, factor=8)]),
        "rank late by 5 %": Case(STRAGGLER, ("3",), [faults.SlowRank(rank=3, share=0.06)]),
        "rank late by 10 %": Case(STRAGGLER, ("3",), [faults.SlowRank(rank=3, share=0.12, since=ONSET)], onset=ONSET),
        "rank late by 30 %": Case(STRAGGLER, ("3",), [faults.SlowRank(rank=3, share=0.3)]),
        "the same, 30 % lost": Case(
            STRAGGLER, ("3",), [faults.SlowRank(rank=3, share=0.12)], reporting=Reporting(loss=0.3)
        ),
        "rank late in each 5th step": Case(STRAGGLER, ("3",), [faults.SlowRank(rank=3, share=0.5, every=5)]),
        "slow host": Case(STRAGGLER, ("gpu-001",), [faults.SlowHost(host=1, share=0.15)]),
        "network at 40 %": Case(NETWORK, None, [faults.SlowNetwork(share=0.4, since=ONSET)], onset=ONSET),
        "rank stops": Case(HANG, ("5",), [faults.StoppedRank(rank=5, at=ONSET)], onset=ONSET),
        "adapter dead": Case(HANG, (), [faults.DeadAdapter(host=0, place=5, at=ONSET)], onset=ONSET),
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
        true: The loss that is true.
    """

    right: float
    wrong: float
    first: float | None
    loss: float | None
    true: float | None


def run(case: Case, layout: str) -> Row:
    """Simulate a job, replay its records, and compare the verdicts with the truth."""
    seconds = LONG_SECONDS if layout.endswith("-20s") else SECONDS
    if case.verdict is HANG:
        seconds += 2 * SECONDS
    scenario = Scenario(
        LAYOUTS[layout](), seconds, list(case.events), variation=case.variation, reporting=case.reporting
    )
    records = simulate(scenario).records
    given = [(one.time, one.judgement) for one in Replay().judgements(records, seconds)]
    marks = [(time, _is_right(case, found), _is_wrong(case, found), found) for time, found in given]
    firsts = [time for time, right, _, _ in marks if right]
    after = [right for time, right, _, _ in marks if firsts and time >= firsts[0]]
    losses = [found.loss for _, right, _, found in marks if right and found.verdict is STRAGGLER]
    return Row(
        sum(after) / max(len(after), 1),
        sum(wrong for _, _, wrong, _ in marks) / max(len(marks), 1),
        firsts[0] - case.onset if firsts else None,
        median(losses) if losses else None,
        true_loss(scenario) if case.verdict is STRAGGLER and not case.onset else None,
    )


def _named(found: Judgement) -> tuple[str, ...]:
    is_host = found.verdict is STRAGGLER and found.hosts
    return tuple(found.hosts) if is_host else tuple(one.rank for one in found.ranks)


def _is_right(case: Case, found: Judgement) -> bool:
    if case.verdict is None:
        return found.verdict not in ALARMS
    return found.verdict is case.verdict and (case.names is None or _named(found) == case.names)


def _is_wrong(case: Case, found: Judgement) -> bool:
    if case.verdict is HANG and found.verdict is HANG and not found.ranks:
        return False  # nobody is named
    return found.verdict in ALARMS and not _is_right(case, found)


def _row(job: tuple[str, str]) -> str:
    layout, name = job
    found = run(CASES[name], layout)
    cells = [
        f"{found.right:.0%}",
        f"{found.wrong:.1%}",
        "" if CASES[name].verdict is None else "never" if found.first is None else f"{found.first:.0f} s",
        "" if found.loss is None else f"{found.loss:.3f}",
        "" if found.true is None else f"{found.true:.3f}",
    ]
    return f"| {layout} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    wanted = tuple(sys.argv[1:]) or ("",)
    jobs = [(layout, name) for layout in LAYOUTS for name in CASES if f"{layout}/{name}".startswith(wanted)]
    print("| job | case | right | wrong | first after | loss stated | loss true |")
    print("|---|---|---|---|---|---|---|")
    with Pool(2) as workers:
        for row in workers.imap(_row, jobs):
            print(row, flush=True)


if __name__ == "__main__":
    main()
