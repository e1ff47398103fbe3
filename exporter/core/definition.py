"""Definition: one kind of source, as the daemon registers it; and Context, what a source uses beyond its options.

Start, reload and stop know no source by name: what one of them needs that the others do not is in its Definition. Only
probes and service discovery are about switches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from exporter.config.schema import Expected
from exporter.core.poller import Step
from exporter.core.source import Host, Source
from exporter.core.supervision import Supervisor
from exporter.core.table import LabelValues, Schema, Table

SharedType = TypeVar("SharedType")


class SharedObjects:
    """Objects that several sources use, one of each type; they live as long as the daemon, which owns them."""

    def __init__(self) -> None:
        self._objects: dict[type, object] = {}

    def get(self, kind: type[SharedType]) -> SharedType:
        """Return the object of a type, created without arguments at the first call."""
        if kind not in self._objects:
            self._objects[kind] = kind()
        return cast(SharedType, self._objects[kind])


def _pass_on(state: object, table: Table) -> tuple[object, Sequence[Table]]:
    """Return the table unchanged: the default of `transport`, `publish` and `judge`."""
    return state, (table,)


@dataclass(frozen=True, slots=True)
class Context:
    """What a source uses beyond its own options.

    Attributes:
        host: The host that is read.
        sections: Options of all sections of the configuration, by name: a collector needs those of the broker.
        expected: What the configuration expects of the host.
        shared: Objects that sources share.
        supervisor: Runs tasks that a source needs beside its reads.
        transport: Step that compares the timings of this host's ranks with the traffic of its ports.
        publish: Step that publishes the timings of ranks, where there is a broker, and passes other tables on.
        judge: Returns a step that computes verdicts from the timings of all ranks of a job. Its argument returns the
            published states of ports and hosts, None while they are unknown.
    """

    host: Host
    sections: Mapping[str, Any] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    shared: SharedObjects = field(default_factory=SharedObjects)
    supervisor: Supervisor = field(default_factory=Supervisor)
    transport: Step = _pass_on
    publish: Step = _pass_on
    judge: Callable[[Callable[[], Any]], Step] = lambda _: _pass_on


class SourceSteps(NamedTuple):
    """Steps of a source that differ from the common ones.

    Attributes:
        first: Steps before the common ones.
        verdicts: Replaces the common step that computes verdicts on jobs.
        in_thread: Whether all steps run in a thread, because they may take seconds.
    """

    first: Sequence[Step] = ()
    verdicts: Step | None = None
    in_thread: bool = False


class ExpectKeys(NamedTuple):
    """Keys of the section `expect` that apply to the ports of a source; empty where none does.

    Attributes:
        speed: Speed of each link.
        carrier_speed: Speed of links that carry RDMA, where there is no `speed`.
        ports: Number of ports that should be ready.
    """

    speed: str = ""
    carrier_speed: str = ""
    ports: str = ""


class PollRows(NamedTuple):
    """Rows about the polls of each source of a kind, which remain while it is down.

    Attributes:
        schema: Has the endings `up`, `poll_duration_seconds` and `overruns_total`.
        labels: Returns the labels of a source.
    """

    schema: Schema
    labels: Callable[[Any], LabelValues]


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind of source, as the daemon registers it.

    Attributes:
        name: Value of the label `source`, and key under `sources:` in the configuration.
        options: Type of its part of the configuration.
        schemas: Schemas of all tables that it can return.
        build: Creates the sources from the options; several where there are several targets. It changes nothing that
            running sources use, since the configuration may still be rejected. Raises ValueError where the options
            are invalid.
        section: Top-level key of the configuration, for a source that is not configured under `sources:`.
        complete: Adds the contents of files that the options name, given the folder of the configuration. May block;
            raises ConfigError or RuleError.
        measured: Reads results of benchmarks that the options name, with the arguments and errors of `complete`;
            returns for each run the bus bandwidth by kind and size.
        apply: Updates shared objects to options that take effect, before their sources start.
        steps: Returns the steps of a source that differ from the common ones.
        expect: Keys of the section `expect` that apply to its ports.
        polls: Rows about its polls.
        describe: Describes the targets in the options, for `check-config`.
    """

    name: str
    options: type[msgspec.Struct]
    schemas: Sequence[Schema]
    build: Callable[[Any, Context], Sequence[Source]]
    section: str = ""
    complete: Callable[[Any, Path], Any] | None = None
    measured: Callable[[Any, Path], Sequence[Mapping[tuple[str, int], float]]] | None = None
    apply: Callable[[Any, Context], None] | None = None
    steps: Callable[[Any, Context], SourceSteps] | None = None
    expect: ExpectKeys = field(default_factory=ExpectKeys)
    polls: PollRows | None = None
    describe: Callable[[Any], str] | None = None
