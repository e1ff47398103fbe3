"""Source `hostcheck`: checks of the configuration of this host, read-only, and without rights.

What is right is counted only; a result that needs attention has a series of its own, with what was found. What cannot
be read is unknown, and so counted.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from types import MappingProxyType

from exporter.core.blocking import BlockingCalls
from exporter.core.definition import Context, Definition
from exporter.core.source import Failure, Host, Reading, Source
from exporter.core.table import RowKeeper, Table, TableBuilder
from exporter.linux.nic_reader import NicReader
from exporter.linux.rdma_reader import RdmaReader
from exporter.preflight.checks import CHECKS
from exporter.preflight.results import Finding, Result, counts, evaluate
from exporter.preflight.settings import Setting, settings_of
from exporter.sources.common.blocking_call import make_call
from exporter.sources.common.failures import failure_of
from exporter.sources.common.host_ports import SCAN, nic_reader, nic_turns
from exporter.sources.hostcheck.host_facts import Configured, host_facts, readings
from exporter.sources.hostcheck.metrics import RESULTS, SETTING, STATUS, UNLISTED
from exporter.sources.hostcheck.options import HostcheckOptions
from exporter.sources.pci.topology import find_gpus, list_folder
from exporter.sources.rdma.ports import rdma_reader

CALL_DEADLINE = 10.0
"""Seconds for reading all facts of one kind."""

NETWORK = "network_ports"
"""The facts that are read by calls into network devices."""

MAX_OBJECTS = 100
"""Objects with a result of warn or fail that have series; failures first."""

MAX_SETTINGS = 64
"""Values of settings that have series."""

SCHEMAS = (RESULTS, STATUS, SETTING, UNLISTED)

MAX_EVIDENCE = 200
"""Characters of the label `evidence`."""

LEVELS: Mapping[Result, int] = MappingProxyType({Result.WARN: 1, Result.FAIL: 2})


class HostcheckSource:
    """Reads the facts of this host, and evaluates the checks."""

    name = "hostcheck"
    target = ""
    changed: asyncio.Event | None = None

    def __init__(
        self,
        options: HostcheckOptions,
        host: Host,
        configured: Configured,
        nic: Callable[[], NicReader],
        rdma: Callable[[], RdmaReader],
    ) -> None:
        """Read nothing yet.

        Args:
            options: The configuration of this source.
            host: This host.
            configured: What other sections expect of the host.
            nic: Opens the reader of network devices, for each read.
            rdma: Opens that of RDMA devices.
        """
        self.interval = float(options.interval)
        self.settings = (options, configured)
        self._host, self._configured, self._nic, self._rdma = host, configured, nic, rdma
        self._checks = [check for check in CHECKS if options.matches(check.name)]
        # Only calls into network devices take turns with other sources, which would wait for the others too.
        self._network = BlockingCalls("hostcheck-nic", CALL_DEADLINE, nic_turns(host))
        self._serial = BlockingCalls("hostcheck", CALL_DEADLINE, host.hardware.turns("hostcheck"))
        self._keepers = {schema: RowKeeper(schema.labels) for schema in SCHEMAS}

    async def applies(self) -> bool:
        """Return whether the host has RDMA devices or GPUs."""
        return await make_call(self._serial, SCAN, partial(_has_devices, self._host))

    async def read(self) -> Reading:
        """Read the facts, and evaluate the checks; a kind that fails is unknown, and a failure."""
        failures: list[Failure] = []
        calls = readings(self._host, self._nic, self._rdma, failures)
        network = {kind: call for kind, call in calls.items() if kind == NETWORK}
        others = {kind: call for kind, call in calls.items() if kind != NETWORK}
        answers = await self._serial.run(list(others.items())) | await self._network.run(list(network.items()))
        failures += [failure_of(kind, one, kind) for kind, one in answers.items() if isinstance(one, Exception)]
        facts = host_facts(self._host, answers, self._configured)
        results, settings = evaluate(self._checks, facts), settings_of(facts)
        return Reading(self._tables(results, settings, monotonic()), failures)

    async def close(self) -> None:
        """Stop the worker threads."""
        self._serial.close()
        self._network.close()

    def _tables(self, results: Mapping[str, Sequence[Finding]], settings: Sequence[Setting], now: float) -> list[Table]:
        made = {schema: TableBuilder(schema) for schema in SCHEMAS}
        counted, listed, unlisted = made[RESULTS], made[STATUS], made[UNLISTED]
        for check, found in results.items():
            if all(one.result is Result.NOT_APPLICABLE for one in found):
                continue  # the series of a host are few
            for result, number in counts(found).items():
                if number:
                    counted.row((check, result.value), {"results": number})
        attention = worst_results(results)
        for (check, name), one in list(attention.items())[:MAX_OBJECTS]:
            info = (one.result.value, one.evidence[:MAX_EVIDENCE])
            listed.row((check, name), {"status": LEVELS[one.result], "info": info})
        unlisted.row((), {"unlisted": max(len(attention) - MAX_OBJECTS, 0)})
        for setting in settings[:MAX_SETTINGS]:
            made[SETTING].row(setting, {"setting_info": (self._host.name,)})
        return [one.table(self._keepers[schema], now) for schema, one in made.items() if len(one.keys)]


def _has_devices(host: Host) -> bool:
    folder = host.sysfs / "class" / "infiniband"
    return any(list_folder(folder)) or bool(find_gpus(host.sysfs))


def worst_results(results: Mapping[str, Sequence[Finding]]) -> Mapping[tuple[str, str], Finding]:
    """Return the worst result that needs attention by check and object, failures first."""
    found: dict[tuple[str, str], Finding] = {}
    for check, findings in results.items():
        for one in findings:
            before = found.get((check, one.object))
            if one.result in LEVELS and (before is None or LEVELS[one.result] > LEVELS[before.result]):
                found[check, one.object] = one
    return dict(sorted(found.items(), key=lambda item: -LEVELS[item[1].result]))


def _build(options: HostcheckOptions, context: Context) -> list[Source]:
    host = context.host
    configured = Configured(context.expected, context.sections.get("rdma"))
    return [HostcheckSource(options, host, configured, nic_reader(host), rdma_reader(host))]


DEFINITION = Definition("hostcheck", HostcheckOptions, SCHEMAS, _build)
