"""`estimate --measured`: a running job's own figures, from the metrics of exporters."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from exporter.commands.scrapes import lines_of, read_exporters
from exporter.commands.terminal import listed
from exporter.config.errors import UserError
from exporter.core.printable import printable
from exporter.meaning.training.estimates import Estimate, Sizing
from exporter.meaning.training.measured_job import METRICS, NETWORK_BYTES, STEP_SECONDS, MeasuredJob, measured_jobs

MAX_NAMES = 8
"""Jobs that an error names."""


class Measured(NamedTuple):
    """What was measured of a job: its traffic, its time of computing, and its step now; None where not known."""

    sizing: Sizing
    compute: float | None
    now: Estimate | None


def read_job(urls: Sequence[str], name: str | None, links: int, oversubscription: float) -> Measured:
    """Read the figures of a job; what cannot be read is reported on standard error.

    Args:
        urls: URLs of the metrics of exporters: a host of the job for its bytes, the collector for its times.
        name: The job; None for the only one.
        links: Links of a host.
        oversubscription: Of leaves.

    Raises:
        UserError: No exporter has the job, or its bytes, or several jobs are there and none is chosen.
    """
    scrapes = read_exporters(urls, lines_of(METRICS))
    for one in scrapes:
        if one.error:
            print(f"fabric-exporter: {one.address}: {one.error}", file=sys.stderr)  # noqa: T201  # what is not read
    jobs = measured_jobs(sample for one in scrapes for sample in one.samples)
    job = jobs[_chosen(list(jobs), name)]
    if job.ranks is None or job.hosts is None or job.sent is None:
        raise UserError(
            f"--measured: no exporter has {NETWORK_BYTES} and {STEP_SECONDS[0]} of the job: give the metrics of one of"
            " its hosts, and of the collector where there is one; or --bytes and --compute"
        )
    sizing = Sizing(
        None,
        job.ranks,
        links=links,
        ranks_per_host=-(-job.ranks // job.hosts),
        oversubscription=oversubscription,
        sent=job.sent,
    )
    return Measured(sizing, job.compute, _now(job))


def _chosen(names: Sequence[str], name: str | None) -> str:
    shown = listed([printable(one, "?") for one in names], MAX_NAMES)
    if name is not None and name not in names:
        raise UserError(f"--train-job: no exporter has the job {name[:80]!r}; they have {shown or 'none'}")
    if name is None and len(names) != 1:
        raise UserError(
            f"--measured: the exporters have {len(names)} jobs: {shown}; choose one by --train-job"
            if names
            else "--measured: the exporters have no job whose timings they read; see docs/training.md"
        )
    return name or names[0]


def _now(job: MeasuredJob) -> Estimate | None:
    """Return the job's step as it is; None without the time of its network."""
    if job.sent is None or not job.network or not job.step or job.compute is None:
        return None
    return Estimate(job.sent / job.network, job.network, job.step, job.compute / job.step)
