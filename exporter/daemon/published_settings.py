"""Settings of this host that are published: those of the source `hostcheck`, and the version of NCCL of its jobs."""

from collections.abc import Iterable, Iterator, Sequence

from exporter.core.table import Table
from exporter.mqtt.host_settings import Setting

SETTING = "setting_info"
TRANSPORT = "transport_info"
LOG_AGE = "log_age_seconds"

MAX_LOG_AGE = 6 * 3600.0
"""Seconds since the last line of a log of NCCL after which its job is over: as the rules of the alerts have it."""

NCCL_VERSION = "version of NCCL"


def published_settings(tables: Iterable[Table]) -> list[Setting]:
    """Return the settings in the tables of all sources, sorted."""
    found: set[Setting] = set()
    for table in tables:
        if SETTING in table.schema.metrics:
            found |= {(of, name, value) for of, name, value in table.rows.keys}
        elif TRANSPORT in table.schema.metrics:
            found.update(_versions(table))
    return sorted(found)


def _versions(table: Table) -> Iterator[Setting]:
    at = table.schema.metrics[TRANSPORT].extra.index("version")
    infos: Sequence[object] = table.values(TRANSPORT) or ()
    ages: Sequence[object] = table.numbers(LOG_AGE) or ()
    for (job, *_), info, age in zip(table.rows.keys, infos, ages, strict=False):
        if isinstance(info, tuple) and isinstance(age, int | float) and age < MAX_LOG_AGE and info[at]:
            yield f"job {job}", NCCL_VERSION, info[at]
