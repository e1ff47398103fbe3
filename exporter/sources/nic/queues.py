"""How all network devices queue what they send: asked at once, and the seldomer, the longer the list is.

The list has an entry for each queue of each device of the host, its software devices among them, wanted or not.
"""

from collections.abc import Collection, Mapping
from time import monotonic
from typing import NamedTuple

from exporter.core.source import Failure
from exporter.linux.netlink.qdisc import Queueing
from exporter.linux.netlink.rtnetlink import Link
from exporter.linux.nic_reader import NicReader
from exporter.sources.common.failures import failure_of
from exporter.sources.nic.questions import REFUSED, SLOWLY

QUESTION = "queueing disciplines"

HOLD = 100.0
"""Seconds that an answer holds for each second that it took: so asking takes a hundredth of the time at most."""


class Queues(NamedTuple):
    """What was answered: how devices queue, by index, and when that was asked; `failures` are of the devices."""

    time: float
    found: Mapping[int, Queueing]
    failures: tuple[Failure, ...] = ()


class AskingQueues:
    """Asks, and keeps the answer while it holds; a refusal is no failure, and holds like what rarely changes."""

    def __init__(self) -> None:
        """Begin with no answer."""
        self._kept = Queues(0.0, {})
        self._until = 0.0
        self._of: set[int] = set()

    def read(self, reader: NicReader, links: Collection[Link]) -> Queues:
        """Ask, or give what was answered; blocks, and belongs in the thread.

        Raises:
            OSError: The list cannot be had.
        """
        indexes, began = {link.ifindex for link in links}, monotonic()
        if began < self._until and indexes == self._of:
            return self._kept
        found: dict[int, Queueing] = {}
        failures = []
        hold = SLOWLY
        try:
            answers = reader.queueing(links)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        else:
            hold = min(SLOWLY, HOLD * (monotonic() - began))
            names = {link.ifindex: link.name for link in links}
            for index, answer in answers.items():
                if isinstance(answer, Queueing):
                    found[index] = answer
                else:
                    failures.append(failure_of(names[index], answer, f"{names[index]}: {QUESTION}"))
        self._until, self._of = began + hold, indexes
        self._kept = Queues(began, found, tuple(failures))
        return self._kept
