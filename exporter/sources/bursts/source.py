"""Bursts: the bytes of this host's RDMA ports, sampled at a fixed tick that does not depend on who scrapes.

A few counters of each port, cheap enough to be read every second, are read at each tick, and handed on with their own
times at each interval. The time that reading takes, and the firmware commands, are budgets; every device has an equal
share of both, so that one that answers slowly loses its own ticks and none of another's. What comes late is left out
and counted, never stretched and never made up for.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from time import monotonic
from typing import Annotated

import msgspec

from exporter.config.units import Duration
from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.source import (
    Definition,
    Failure,
    Host,
    Options,
    Reading,
    Source,
)
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Samples,
    Table,
    TableBuilder,
)
from exporter.core.vocabulary import counter, gauge
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.bursts.device import (
    BY_DRIVER,
    Device,
    Sample,
    Visit,
    byte_counters,
)
from exporter.sources.common.counter_file import InUse
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import SCAN, not_listed
from exporter.sources.rdma.metrics import LABELS
from exporter.sources.rdma.ports import rdma_reader

SHORTEST_TICK = 0.1
"""Seconds: the kernel keeps what it read of `hw_counters/` for a tenth of this, and answers from that."""

MOST_TICKS = 600
"""Ticks in one interval, whose samples are kept until they are handed on."""

CALL_DEADLINE = 1.0
"""Seconds that the files of one device may take; its calls wait in one line with those of the source `rdma`."""

TIME_AHEAD = 60.0
"""Seconds whose budget of time a device may use ahead: one slow answer among many quick ones costs no tick."""

COMMANDS_AHEAD = 1.0
"""Likewise of firmware commands, whose number is known beforehand."""

REASONS = ("late", "budget", "hung")

SCHEMA = vocabulary.schema(
    "fabric_rdma_",
    LABELS,
    own={vocabulary.SAMPLES: gauge("Bytes received and transmitted up to each tick of the last interval.")},
    origins={
        vocabulary.SAMPLES: list(
            dict.fromkeys(
                name for driver in BY_DRIVER for one in byte_counters(driver) for name in (*one.receive, *one.transmit)
            )
        )
    },
    internal=True,
)

TICKS = vocabulary.schema(
    "fabric_exporter_",
    (),
    own={
        "burst_ticks_total": counter(
            "Times that a device's bytes were due to be sampled, once a tick for each. Sampled are devices that have"
            " the folder counters/, and those of efa, erdma, ionic, irdma and mana; not bnxt_re, which counts once a"
            " second."
        )
    },
)

SKIPPED = vocabulary.schema(
    "fabric_exporter_",
    ("reason",),
    own={
        "burst_ticks_skipped_total": counter(
            "Of those times, the ones that were left out: late, as the program or other devices were busy; for the"
            " budget, as the device answers slowly or the tick is short; hung, as an earlier call has not come back."
        )
    },
)


class BurstOptions(Options, frozen=True):
    """Configuration of `sources.bursts`; include and exclude are names of devices.

    Attributes:
        tick: Time between samples; what lasts so long is never missed.
        budget: Share of the time that reading may take, all devices together.
        commands: Firmware commands a second, all devices together.
    """

    tick: Duration = Duration(1.0)
    budget: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.01
    commands: Annotated[int, msgspec.Meta(ge=1)] = 200

    def __post_init__(self) -> None:
        """Check the tick against the interval.

        Raises:
            ValueError: They do not go together.
        """
        if self.tick < SHORTEST_TICK:
            raise ValueError(f"tick: {self.tick:g} s is too short; the shortest is 100ms")
        if not 1 <= self.interval / self.tick <= MOST_TICKS:
            raise ValueError(
                f"tick: {self.tick:g} s does not go with an interval of {self.interval:g} s,"
                f" which holds from 1 to {MOST_TICKS} ticks"
            )
        super().__post_init__()


@dataclass(slots=True)
class Account:
    """What a device used of its share of something: the time until which that is paid for."""

    paid_until: float = -inf

    def is_open(self, now: float, ahead: float) -> bool:
        """Tell whether more may be used: no more is owed than `ahead` seconds bring."""
        return self.paid_until - now <= ahead

    def charge(self, amount: float, rate: float, now: float) -> None:
        """Note what was used; `rate` is what a second brings."""
        self.paid_until = max(self.paid_until, now) + amount / rate


@dataclass(slots=True)
class _Sampled:
    """A device, its ports that can be sampled, what it used, and whether its links are to be looked at."""

    device: Device
    ports: Sequence[LabelValues] = ()
    time: Account = field(default_factory=Account)
    commands: Account = field(default_factory=Account)
    look: bool = True


@dataclass(slots=True)
class _Row:
    """What was read of a port since it was last handed on."""

    epoch: Hashable
    samples: deque[Sample]


class BurstSource:
    """Samples the RDMA ports of this host."""

    name = "bursts"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(self, options: BurstOptions, host: Host, open_reader: Callable[[], RdmaReader]) -> None:
        """Take what is wanted.

        Args:
            options: The configuration.
            host: The roots of the file systems.
            open_reader: Opens what tells which ports are read: those that the source `rdma` reads.
        """
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._class = host.sysfs / "class" / "infiniband"
        self._serial = BlockingCalls("bursts", CALL_DEADLINE, self._class)
        self._task: asyncio.Task[None] | None = None
        self._reader = open_reader()
        self._devices: dict[str, _Sampled] = {}
        self._in_use = InUse()
        self._rows: dict[LabelValues, _Row] = {}
        self._scan_due = True
        self._fault: Exception | None = None
        self._failures: dict[tuple[str, str], Failure] = {}
        self._ticks = 0
        self._skipped = dict.fromkeys(REASONS, 0)
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (SCHEMA, TICKS, SKIPPED)}

    async def applies(self) -> bool:
        """Tell whether there is any RDMA device that is not excluded."""
        found = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        return not isinstance(found, list) or bool(found)  # what cannot be listed is for the read to say

    async def read(self) -> Reading:
        """Hand on what was sampled since the last time; waits for no device.

        Raises:
            SourceError: The devices could not be listed.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="bursts: ticks")
        elif self._task.done():
            ended, self._task = self._task, None
            ended.result()  # raises what ended it; the next read begins anew
        self._scan_due = True
        for one in self._devices.values():
            one.look = True
        failures, self._failures = list(self._failures.values()), {}
        if self._fault is not None:
            raise not_listed(self._fault)
        return Reading(self._tables(), failures)

    async def close(self) -> None:
        """Stop, and close all files; those that a hung call may be using are closed when it comes back."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._serial.close()
        for name in self._in_use.end(tuple(self._devices)):
            self._close_device(name)
        self._reader.close()

    async def _run(self) -> None:
        """Tick until cancelled, at times that are fixed from the beginning."""
        tick = float(self._options.tick)
        begin, number = monotonic(), 0
        while True:
            await _until(begin + number * tick)
            first = ceil((monotonic() - begin) / tick - 0.5)  # of the ticks that are not late by more than a half
            if first > number:
                self._skip("late", (first - number) * len(self._devices))
                number = first
            else:
                await self._tick()
                number += 1

    def _skip(self, reason: str, times: int = 1) -> None:
        self._ticks += times
        self._skipped[reason] += times

    async def _tick(self) -> None:
        """Visit every device that has some of its budgets left."""
        if self._scan_due:
            self._scan_due = False
            await self._scan()
        now, calls = monotonic(), []
        for name, one in self._devices.items():
            if one.time.is_open(now, TIME_AHEAD) and one.commands.is_open(now, COMMANDS_AHEAD):
                calls.append((name, partial(self._visit, name, one.device, look=one.look)))
            else:
                self._skip("budget")
        out = self._serial.hanging
        for name, result in (await self._serial.run(calls)).items():
            if isinstance(result, HungError):
                self._skip("hung")
                if name in self._serial.hanging - out:  # it was asked now, and held up the others until the deadline
                    self._charge(self._devices[name], CALL_DEADLINE, 0)
            else:
                self._ticks += 1
            if isinstance(result, Visit):
                self._take(name, result)
            else:
                self._fail(failure_of(name, result, self._class / name))

    def _visit(self, name: str, device: Device, *, look: bool) -> Visit:
        """Visit a device; runs in the thread."""
        with self._in_use.use(name, self._close_device):
            return device.visit(look=look)

    def _close_device(self, name: str) -> None:
        one = self._devices.pop(name, None)
        if one is not None:
            one.device.close()

    async def _scan(self) -> None:
        """See which devices there are; where they cannot be listed, those that are known stay."""
        names = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        if isinstance(names, Exception):
            self._fault = names
            return
        self._fault = None
        for gone in self._devices.keys() - set(names) - self._serial.hanging:
            self._devices.pop(gone).device.close()
            self._forget(gone, ())
        for name in names:
            if name not in self._devices:
                self._devices[name] = _Sampled(Device(self._class / name, self._options.tick, self._reader))

    def _names(self) -> list[str]:
        """List the devices that may be touched; runs in the thread."""
        try:
            return sorted(name for name in os.listdir(self._class) if self._options.matches(name))  # noqa: PTH208  # as `rdma` does
        except FileNotFoundError:
            return []

    def _take(self, name: str, visit: Visit) -> None:
        """Keep what a visit gave."""
        one = self._devices[name]
        one.look, one.ports = False, visit.ports
        self._charge(one, visit.seconds, visit.commands)
        for failure in visit.failures:
            self._fail(failure)
        self._forget(name, visit.ports)
        for key, sample in visit.samples.items():
            row = self._rows.get(key)
            if row is None or row.epoch != visit.epoch:
                row = self._rows[key] = _Row(visit.epoch, deque(maxlen=2 * MOST_TICKS))
            row.samples.append(sample)

    def _charge(self, one: _Sampled, seconds: float, commands: int) -> None:
        """Charge a device with what it used of its share; those with nothing to sample have none."""
        now, count = monotonic(), sum(bool(other.ports) for other in self._devices.values()) or 1
        one.time.charge(seconds, self._options.budget / count, now)
        one.commands.charge(commands, self._options.commands / count, now)

    def _fail(self, failure: Failure) -> None:
        """Keep a failure to be told once at the next hand-over, however many ticks had it."""
        self._failures[failure.device, failure.reason] = failure

    def _forget(self, device: str, ports: Sequence[LabelValues]) -> None:
        """Drop the rows of a device's ports that are not among these."""
        for key in [key for key in self._rows if key[0] == device and key not in ports]:
            del self._rows[key]

    def _tables(self) -> list[Table]:
        """Make the tables of what there is, and start the samples anew; none while there is no device."""
        if not self._devices:
            return []
        ticks, skipped, samples = TableBuilder(TICKS), TableBuilder(SKIPPED), TableBuilder(SCHEMA)
        ticks.row((), {"burst_ticks_total": self._ticks})
        for reason, count in self._skipped.items():
            skipped.row((reason,), {"burst_ticks_skipped_total": count})
        for key, row in self._rows.items():
            samples.row(key, {vocabulary.SAMPLES: Samples(tuple(row.samples))})
            row.samples.clear()
        now = monotonic()
        tables = [one.table(self._keepers[one.schema], now) for one in (ticks, skipped)]
        if self._rows:
            epochs = [row.epoch for row in self._rows.values()]
            tables.append(samples.table(self._keepers[SCHEMA], now, epochs=epochs))
        return tables


async def _until(due: float) -> None:
    """Wait until the clock shows a time."""
    await asyncio.sleep(max(0.0, due - monotonic()))


def _build(options: BurstOptions, host: Host) -> list[Source]:
    return [BurstSource(options, host, rdma_reader(host))]


DEFINITION = Definition("bursts", BurstOptions, (SCHEMA, TICKS, SKIPPED), _build)
