"""The registry of sources: their sections of the configuration, and every metric that can be exported."""

from collections.abc import Sequence

from exporter.config import schema as config
from exporter.config.errors import ConfigError, RuleError
from exporter.config.schema import Config
from exporter.core.definition import Context, Definition
from exporter.core.source import Source
from exporter.core.table import Metric, Schema
from exporter.daemon import health, own_metrics
from exporter.daemon.judge import CAUSES
from exporter.daemon.pipeline import MEANINGS
from exporter.daemon.probe import PROBE
from exporter.daemon.probe_options import ProbeSection
from exporter.mqtt import options as mqtt
from exporter.sources.bursts import source as bursts
from exporter.sources.collector import source as collector
from exporter.sources.hostcheck import source as hostcheck
from exporter.sources.ibfabric import source as ibfabric
from exporter.sources.lldp import source as lldp
from exporter.sources.nccl import source as nccl
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nic import source as nic
from exporter.sources.optics import source as optics
from exporter.sources.pci import source as pci
from exporter.sources.pods import source as pods
from exporter.sources.rdma import source as rdma
from exporter.sources.switch import source as switch

SOURCES: tuple[Definition, ...] = (
    rdma.DEFINITION,
    bursts.DEFINITION,
    nic.DEFINITION,
    pods.DEFINITION,
    pci.DEFINITION,
    optics.DEFINITION,
    lldp.DEFINITION,
    hostcheck.DEFINITION,
    switch.DEFINITION,
    ibfabric.DEFINITION,
    nccl.DEFINITION,
    nccl_facts.DEFINITION,
    collector.DEFINITION,
)
"""All sources: a new one adds its line here."""

SECTIONS: tuple[config.Section, ...] = (*SOURCES, ProbeSection(), mqtt.SECTION)
"""All sections of the configuration file that a source or another package defines."""


def metrics() -> list[Metric]:
    """Return every metric that can be exported: those of sources, those computed from them, and the exporter's own."""
    found = metrics_of([schema for definition in SOURCES for schema in definition.schemas])
    polls = [definition.polls.schema for definition in SOURCES if definition.polls is not None]
    found += [metric for schema in (*polls, *health.SCHEMAS, CAUSES, PROBE) for metric in schema.metrics.values()]
    found += own_metrics.metrics()
    return list({metric.name: metric for metric in reversed(found)}.values())[::-1]


def metrics_of(schemas: Sequence[Schema]) -> list[Metric]:
    """Return the exported metrics of these schemas, and those computed from them."""
    found = [metric for schema in schemas if not schema.internal for metric in schema.metrics.values()]
    return found + [metric for schema in schemas for meaning in MEANINGS for metric in meaning.outputs(schema)]


def build_sources(definition: Definition, context: Context) -> Sequence[Source]:
    """Build the sources of one kind; none where it is disabled.

    Raises:
        ConfigError: The options are invalid.
    """
    options = context.sections[definition.name]
    if not getattr(options, "enabled", True):
        return []
    try:
        return definition.build(options, context)
    except RuleError as error:
        raise ConfigError(f"{section_name(definition)}: {error}") from None


def section_path(section: config.Section) -> list[str | int]:
    """Return the keys that lead to a section of the configuration file."""
    return [section.section] if section.section else ["sources", section.name]


def section_name(section: config.Section) -> str:
    """Return the same keys as text, such as `sources.rdma`."""
    return ".".join(map(str, section_path(section)))


def export_patterns(section: config.Section, settings: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns `drop` and `keep` of a section."""
    options = settings.sources[section.name]
    return options.drop, options.keep
