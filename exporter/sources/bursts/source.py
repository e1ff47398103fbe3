"""Bursts: byte counters of this host's RDMA ports, sampled at a fixed tick that does not depend on scrapes.

A few counters of each port, cheap enough to be read every second, are read at each tick, and returned with their own
times at each interval. Time and firmware commands are limited by budgets, of which each device has an equal share, so
that a device that responds slowly loses its own ticks and none of another's. A tick that is late is skipped and
counted; it is never replaced by a longer one or made up for.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from time import monotonic

from exporter.core import vocabulary
from exporter.core.blocking import BlockingCalls, HungError
from exporter.core.definition import Context, Definition
from exporter.core.source import (
    Failure,
    Host,
    Reading,
    Source,
)
from exporter.core.supervision import SupervisedTask, Supervisor
from exporter.core.table import (
    LabelValues,
    RowKeeper,
    Samples,
    Table,
    TableBuilder,
)
from exporter.linux.infiniband import limit_devices
from exporter.linux.rdma_reader import RdmaReader
from exporter.sources.bursts.device import (
    DeviceSamples,
    Sample,
    SampledDevice,
)
from exporter.sources.bursts.metrics import SCHEMA, SKIP_REASONS, SKIPPED, TICKS
from exporter.sources.bursts.options import MAX_TICKS, BurstOptions
from exporter.sources.common.blocking_call import call_error
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import SCAN
from exporter.sources.common.in_use import InUse
from exporter.sources.rdma.ports import rdma_reader

CALL_DEADLINE = 1.0
"""Seconds that the files of one device may take; its calls share one queue with those of the source `rdma`."""

TIME_BURST_SECONDS = 60.0
"""Seconds whose time budget a device may use in advance: one slow response among many fast ones costs no tick."""

COMMANDS_BURST_SECONDS = 1.0
"""The same for firmware commands, whose number is known in advance."""


@dataclass(slots=True)
class Budget:
    """What a device used of its share of a resource: the time until which that is paid for."""

    paid_until: float = -inf

    def is_available(self, now: float, burst_seconds: float) -> bool:
        """Return whether more may be used: no more than the budget of `burst_seconds` is used in advance."""
        return self.paid_until - now <= burst_seconds

    def charge(self, amount: float, rate: float, now: float) -> None:
        """Add an amount that was used; `rate` is the budget per second."""
        self.paid_until = max(self.paid_until, now) + amount / rate


@dataclass(slots=True)
class _DeviceState:
    """A device, its ports that can be sampled, its budgets, and whether its links are to be read at the next tick."""

    device: SampledDevice
    ports: Sequence[LabelValues] = ()
    time: Budget = field(default_factory=Budget)
    commands: Budget = field(default_factory=Budget)
    read_links: bool = True


@dataclass(slots=True)
class _PortSamples:
    """The samples of a port since the source was read last."""

    epoch: Hashable
    samples: deque[Sample]


class BurstSource:
    """Samples the RDMA ports of this host.

    Args:
        options: The configuration.
        host: The roots of the file systems.
        open_reader: Opens RDMA netlink, or recordings of it, to select the ports that the source `rdma` reads too.
    """

    name = "bursts"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(
        self, options: BurstOptions, host: Host, open_reader: Callable[[], RdmaReader], supervisor: Supervisor
    ) -> None:
        self.interval = float(options.interval)
        self.settings = self._options = options
        self._class = host.sysfs / "class" / "infiniband"
        self._serial = BlockingCalls("bursts", CALL_DEADLINE, host.hardware.turns(self._class))
        self._supervisor = supervisor
        self._task: SupervisedTask | None = None
        self._reader = open_reader()
        self._devices: dict[str, _DeviceState] = {}
        self._in_use = InUse()
        self._rows: dict[LabelValues, _PortSamples] = {}
        self._is_scan_due = True
        self._listing_error: Exception | None = None
        self._failures: dict[tuple[str, str], Failure] = {}
        self._ticks = 0
        self._skipped = dict.fromkeys(SKIP_REASONS, 0)
        self._keepers = {schema: RowKeeper(schema.labels) for schema in (SCHEMA, TICKS, SKIPPED)}

    async def applies(self) -> bool:
        """Return whether there is an RDMA device that is not excluded."""
        found = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        return not isinstance(found, list) or bool(found)  # an error of the listing is reported by `read`

    async def read(self) -> Reading:
        """Return the samples since the last read; does not wait for any device.

        Raises:
            SourceError: The devices could not be listed.
        """
        if self._task is None:
            self._task = self._supervisor.start("bursts ticks", self._run)
        self._is_scan_due = True
        for state in self._devices.values():
            state.read_links = True
        failures, self._failures = list(self._failures.values()), {}
        if self._listing_error is not None:
            raise call_error(self._listing_error)
        return Reading(self._tables(), failures)

    async def close(self) -> None:
        """Stop sampling, and close all files; files of a call that hangs are closed when it returns."""
        task, self._task = self._task, None
        if task is not None:
            await task.stop()
        self._serial.close()
        for name in self._in_use.end(tuple(self._devices)):
            self._close_device(name)
        self._reader.close()

    async def _run(self) -> None:
        """Sample until cancelled, at times that are fixed from the start."""
        tick = float(self._options.tick)
        begin, number = monotonic(), 0
        while True:
            await _sleep_until(begin + number * tick)
            first = ceil((monotonic() - begin) / tick - 0.5)  # the first tick that is not late by more than a half
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
        """Sample every device whose budgets are not used up."""
        if self._is_scan_due:
            self._is_scan_due = False
            await self._scan()
        now, calls = monotonic(), []
        for name, state in self._devices.items():
            if state.time.is_available(now, TIME_BURST_SECONDS) and state.commands.is_available(
                now, COMMANDS_BURST_SECONDS
            ):
                calls.append((name, partial(self._sample, name, state.device, read_links=state.read_links)))
            else:
                self._skip("budget")
        hung = self._serial.hanging
        for name, result in (await self._serial.run(calls)).items():
            if isinstance(result, HungError):
                self._skip("hung")
                if name in self._serial.hanging - hung:  # it was called now, and delayed the others until the deadline
                    self._charge(self._devices[name], CALL_DEADLINE, 0)
            else:
                self._ticks += 1
            if isinstance(result, DeviceSamples):
                self._add_samples(name, result)
            else:
                self._fail(failure_of(name, result, self._class / name))

    def _sample(self, name: str, device: SampledDevice, *, read_links: bool) -> DeviceSamples:
        """Sample a device; runs in the thread."""
        with self._in_use.use(name, self._close_device):
            return device.sample(read_links=read_links)

    def _close_device(self, name: str) -> None:
        state = self._devices.pop(name, None)
        if state is not None:
            state.device.close()

    async def _scan(self) -> None:
        """List the devices; if that fails, the known ones remain."""
        names = (await self._serial.run([(SCAN, self._names)]))[SCAN]
        if isinstance(names, Exception):
            self._listing_error = names
            return
        self._listing_error = None
        for removed in self._devices.keys() - set(names) - self._serial.hanging:
            self._devices.pop(removed).device.close()
            self._forget_ports(removed, ())
        for name in names:
            if name not in self._devices:
                self._devices[name] = _DeviceState(SampledDevice(self._class / name, self._options.tick, self._reader))

    def _names(self) -> list[str]:
        """List the selected devices; runs in the thread."""
        try:
            names = sorted(name for name in os.listdir(self._class) if self._options.matches(name))  # noqa: PTH208  # as `rdma` does
        except FileNotFoundError:
            return []
        return list(limit_devices(names, self._devices))  # `rdma` reports those beyond

    def _add_samples(self, name: str, result: DeviceSamples) -> None:
        state = self._devices[name]
        state.read_links, state.ports = False, result.ports
        self._charge(state, result.seconds, result.commands)
        for failure in result.failures:
            self._fail(failure)
        self._forget_ports(name, result.ports)
        for key, sample in result.samples.items():
            row = self._rows.get(key)
            if row is None or row.epoch != result.epoch:
                row = self._rows[key] = _PortSamples(result.epoch, deque(maxlen=2 * MAX_TICKS))
            row.samples.append(sample)

    def _charge(self, state: _DeviceState, seconds: float, commands: int) -> None:
        """Charge a device's share of the budgets; devices without ports to sample have no share."""
        now, count = monotonic(), sum(bool(other.ports) for other in self._devices.values()) or 1
        state.time.charge(seconds, self._options.budget / count, now)
        state.commands.charge(commands, self._options.commands / count, now)

    def _fail(self, failure: Failure) -> None:
        """Add a failure, which the next read reports once, at however many ticks it occurred."""
        self._failures[failure.device, failure.reason] = failure

    def _forget_ports(self, device: str, ports: Sequence[LabelValues]) -> None:
        """Drop the samples of a device's ports that are not among these."""
        for key in [key for key in self._rows if key[0] == device and key not in ports]:
            del self._rows[key]

    def _tables(self) -> list[Table]:
        """Return the tables, none while there is no device, and clear the samples."""
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


async def _sleep_until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - monotonic()))


def _build(options: BurstOptions, context: Context) -> list[Source]:
    return [BurstSource(options, context.host, rdma_reader(context.host), context.supervisor)]


DEFINITION = Definition("bursts", BurstOptions, (SCHEMA, TICKS, SKIPPED), _build)
