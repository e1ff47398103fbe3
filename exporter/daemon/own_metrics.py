"""The exporter's own metrics, by prometheus_client: of the exporter, its process, its interpreter and its collector.

Their values are kept by the parts of the daemon, and read at each scrape. The state of sources is in `health`.
"""

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from exporter import __version__
from exporter.core import vocabulary
from exporter.core.supervision import Supervisor
from exporter.core.table import Kind, LabelValues, Metric, Value
from exporter.core.vocabulary import Ending, counter, gauge, info
from exporter.daemon.relay import Relay, RelayStatus
from exporter.daemon.runtime import LoopLag
from exporter.outputs.negotiation import Format
from exporter.outputs.prometheus_collector import add_sample, family_of
from exporter.outputs.web import WebStats

logger = logging.getLogger(__name__)

_END = b"# EOF\n"


@dataclass(slots=True)
class LastReload:
    """Whether the last load of the configuration succeeded, and the Unix time of the last successful one."""

    succeeded: bool = True
    succeeded_at: float = 0.0


class ExporterState(NamedTuple):
    """What the metrics are computed from at a scrape.

    Attributes:
        requests: Responses by path and status code.
        refused: Refused connections and requests by reason.
        lag: Maximum event loop lag in seconds; None where nothing was measured.
        last_reload: Result of the last load of the configuration.
        restarts: Restarts by kind of task.
        relay: ExporterState of the relay; None where there is no broker.
    """

    requests: Mapping[tuple[str, int], int]
    refused: Mapping[str, int]
    lag: float | None
    last_reload: LastReload
    restarts: Mapping[str, int]
    relay: RelayStatus | None


Values = Mapping[LabelValues, Value | None]
"""Values of one metric by label values; None, as no row at all, where there is none."""


class DeclaredMetric(NamedTuple):
    """A metric, and how its values follow from the state."""

    metric: Metric
    values: Callable[[ExporterState], Values]


def _declared(
    ending: str, declaration: Ending, values: Callable[[ExporterState], Values], *labels: str
) -> DeclaredMetric:
    return DeclaredMetric(vocabulary.metric("fabric_exporter_", labels, ending, declaration), values)


def _relayed(ending: str, declaration: Ending, values: Callable[[RelayStatus], Values], *labels: str) -> DeclaredMetric:
    """Declare a metric of the relay, which is absent where there is no broker."""
    return _declared(
        f"mqtt_{ending}", declaration, lambda state: {} if state.relay is None else values(state.relay), *labels
    )


DECLARED: tuple[DeclaredMetric, ...] = (
    _declared(
        "build_info",
        info("Version of the running exporter and of Python.", "version", "python"),
        lambda _: {(): (__version__, platform.python_version())},
    ),
    _declared(
        "config_last_reload_successful",
        gauge("Whether the last load of the configuration succeeded (1) or failed (0)."),
        lambda state: {(): int(state.last_reload.succeeded)},
    ),
    _declared(
        "config_last_reload_success_timestamp_seconds",
        gauge("Unix time of the last successful load of the configuration."),
        lambda state: {(): state.last_reload.succeeded_at},
    ),
    _declared(
        "event_loop_lag_seconds",
        gauge("Maximum delay of a scheduled poll in the last minute."),
        lambda state: {(): state.lag},
    ),
    _declared(
        "task_restarts_total",
        counter(
            "Tasks of the exporter that ended by an internal error and were started again, by kind of task: a source,"
            " or a task beside the sources."
        ),
        lambda state: {(task,): count for task, count in state.restarts.items()},
        "task",
    ),
    _declared(
        "http_requests_total",
        counter("HTTP responses sent, by path and status code."),
        lambda state: {(path, str(code)): count for (path, code), count in state.requests.items()},
        "path",
        "code",
    ),
    _declared(
        "http_refused_total",
        counter(
            "Connections and requests refused, by reason: too many connections, a failed TLS handshake, a client"
            " certificate whose name is not allowed, a malformed request, a timeout, or a failed authentication."
        ),
        lambda state: {(reason,): count for reason, count in state.refused.items()},
        "reason",
    ),
    _relayed(
        "connected",
        gauge("Whether the broker is connected (1) or not (0)."),
        lambda relay: {(): int(relay.connected)},
    ),
    _relayed(
        "reconnects_total",
        counter("Connections to the broker after the first."),
        lambda relay: {(): relay.reconnects},
    ),
    _relayed(
        "failures_total",
        counter("Connections to the broker that ended or could not be established."),
        lambda relay: {(): relay.failures},
    ),
    _relayed(
        "refused_messages_total",
        counter(
            "Messages that the broker refused with a PUBACK reason code: batches, port states, presence of the host."
        ),
        lambda relay: {(): relay.refused_messages},
    ),
    _relayed(
        "queued_batches",
        gauge("Batches of timings in the queue to the broker."),
        lambda relay: {(): relay.queued_batches},
    ),
    _relayed(
        "states",
        gauge("Active states of ports that are published."),
        lambda relay: {(): relay.states},
    ),
    _relayed(
        "omitted_states",
        gauge(
            "Active states of ports that are not published: beyond the limit, or with names that no topic can contain."
        ),
        lambda relay: {(): relay.omitted_states},
    ),
    _relayed(
        "batches_total",
        counter(
            "Batches of timings by outcome: sent; dropped from the queue, since the broker was unavailable too long;"
            " refused by the broker; invalid, whose names cannot be encoded."
        ),
        lambda relay: {(outcome,): count for outcome, count in relay.batches.items()},
        "outcome",
    ),
)
"""The metrics of the exporter; a new one adds its entry here."""


class OwnMetrics(Collector):
    """Registers the metrics of the exporter and those of prometheus_client in one registry, and renders them."""

    def __init__(
        self,
        web: WebStats,
        lag: LoopLag,
        supervisor: Supervisor,
        last_reload: Callable[[], LastReload],
        relay: Callable[[], Relay | None],
    ) -> None:
        """Register the metrics.

        Args:
            web: Counts of requests.
            lag: Event loop lag.
            supervisor: Counts of restarts.
            last_reload: Returns the result of the last load of the configuration.
            relay: Returns the current relay, None without a broker.
        """
        self._web = web
        self._lag = lag
        self._supervisor = supervisor
        self._last_reload = last_reload
        self._relay = relay
        self.registry = CollectorRegistry()
        self.registry.register(self)
        _register_client(self.registry)

    def collect(self) -> Iterator[Family]:
        """Yield the metrics of the exporter that have a value."""
        state = self._state()
        for metric, values in DECLARED:
            family = family_of(metric)
            for labels, value in values(state).items():
                add_sample(family, metric, labels, value)
            if family.samples:
                yield family

    def render(self, form: Format) -> bytes:
        """Return the text of all metrics in UTF-8, without the end of OpenMetrics: tables follow on the page.

        The schemes of escaping that a scraper may ask for do not change them: no name needs any.
        """
        generate = openmetrics.generate_latest if form is Format.OPENMETRICS else generate_latest
        try:
            page: bytes = generate(self.registry)
        except Exception:  # an unusual /proc must not hide the metrics of the fabric
            logger.exception("the exporter's own metrics are not exported this time")
            return b""
        return page.removesuffix(_END)

    def _state(self) -> ExporterState:
        relay = self._relay()
        return ExporterState(
            requests=dict(self._web.requests),  # copies: the event loop counts on while a thread renders
            refused=self._web.refused(),
            lag=self._lag.longest(),
            last_reload=self._last_reload(),
            restarts=dict(self._supervisor.restarts),
            relay=None if relay is None else relay.status(),
        )


def metrics() -> list[Metric]:
    """Return the exporter's own metrics, those of prometheus_client among them."""
    registry = CollectorRegistry()
    _register_client(registry)
    return [one.metric for one in DECLARED] + [_metric_of(family) for family in registry.collect()]


def _register_client(registry: CollectorRegistry) -> None:
    """Register the collectors of prometheus_client; the process is this one, whatever procfs the sources read."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)


def _metric_of(family: Family) -> Metric:
    """Return the declaration of a family of prometheus_client, which has a sample at any time."""
    sample = family.samples[0]
    labels = tuple(sample.labels)
    return Metric(
        sample.name, Kind(family.type), family.documentation, labels, sample.name, origins=("prometheus_client",)
    )
