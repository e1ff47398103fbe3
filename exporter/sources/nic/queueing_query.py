"""Query of the queueing disciplines of all network devices, with a cache that is valid longer, the longer it takes.

The dump has an entry for each queue of each device of the host, software devices and unselected ones included.
"""

from collections.abc import Collection, Mapping
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.netlink.queueing_disciplines import QueueingDiscipline
from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.failures import failure_of
from exporter.sources.nic.device_queries import REFUSED_ERRNOS, SETTINGS_MAX_AGE_SECONDS

QUERY_NAME = "queueing disciplines"

AGE_PER_DURATION = 100.0
"""Seconds that an answer is valid per second that it took: the query takes a hundredth of the time at most."""


class QueueingReading(NamedTuple):
    """The root queueing disciplines by ifindex, the time of the query, and the failures of single devices."""

    time: float
    disciplines: Mapping[int, QueueingDiscipline]
    failures: tuple[Failure, ...] = ()


class QueueingQuery:
    """Reads the queueing disciplines and caches the answer; a refusal is no failure, and cached like settings."""

    def __init__(self) -> None:
        self._reading = QueueingReading(0.0, {})
        self._valid_until = 0.0
        self._ifindexes: set[int] = set()

    def read(self, reader: NicReader, links: Collection[NetworkLink]) -> QueueingReading:
        """Return the cached or a new answer; blocks, so it runs in the worker thread.

        Raises:
            OSError: The queueing disciplines cannot be listed.
        """
        ifindexes, start = {link.ifindex for link in links}, monotonic()
        if start < self._valid_until and ifindexes == self._ifindexes:
            return self._reading
        disciplines: dict[int, QueueingDiscipline] = {}
        failures = []
        max_age = SETTINGS_MAX_AGE_SECONDS
        try:
            answers = reader.queueing_disciplines(links)
        except OSError as error:
            if error.errno not in REFUSED_ERRNOS:
                raise
        else:
            max_age = min(SETTINGS_MAX_AGE_SECONDS, AGE_PER_DURATION * (monotonic() - start))
            names = {link.ifindex: link.name for link in links}
            for index, answer in answers.items():
                if isinstance(answer, QueueingDiscipline):
                    disciplines[index] = answer
                else:
                    failures.append(failure_of(names[index], answer, f"{names[index]}: {QUERY_NAME}"))
        self._valid_until, self._ifindexes = start + max_age, ifindexes
        self._reading = QueueingReading(start, disciplines, tuple(failures))
        return self._reading
