"""What a configuration needs, built and not yet in use: a reload that fails here changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from exporter.config.schema import Config
from exporter.config.shard import Shard
from exporter.config.yaml_reader import ConfigError
from exporter.core.definition import Context, Definition
from exporter.core.source import Source
from exporter.daemon import sources
from exporter.daemon.pipeline import expectation_of
from exporter.meaning.training.baseline import baseline
from exporter.meaning.training.jobs import JobKnowledge
from exporter.meaning.training.plans import plans_of
from exporter.mqtt.options import SECTION as MQTT
from exporter.mqtt.options import MqttOptions

SourceKey: TypeAlias = tuple[str, str]
"""Name and target of a source."""


class ConfiguredSource(NamedTuple):
    """A source that was built and does not run.

    Attributes:
        source: The source.
        definition: Its definition.
        built_from: Its options and environment: a reload keeps a running source where these are equal.
    """

    source: Source
    definition: Definition
    built_from: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one configuration needs.

    Attributes:
        config: The configuration.
        context: The context of its sources.
        sources: Its sources.
        known: What is known of jobs beside their timings.
    """

    config: Config
    context: Context
    sources: Mapping[SourceKey, ConfiguredSource]
    known: JobKnowledge

    @property
    def broker(self) -> MqttOptions:
        """Options of the broker."""
        options: MqttOptions = self.config.sources[MQTT.name]
        return options


def prepare(config: Config, context: Context, shard: Shard) -> Prepared:
    """Build what a configuration needs; what runs is not changed.

    Args:
        config: The configuration.
        context: The context, without the sections of the configuration.
        shard: Which targets this daemon polls.

    Raises:
        ConfigError: A source cannot be built.
    """
    context = replace(context, sections=config.sources)
    expected = config.expect.for_host(context.host.name)
    configured: dict[SourceKey, ConfiguredSource] = {}
    for definition in sources.SOURCES:
        for source in sources.build_sources(definition, context):
            if source.target and not shard.owns(source.target):
                continue
            key = (source.name, source.target)
            if key in configured:
                raise ConfigError(f"{sources.section_name(definition)}: {source.target!r} is named twice")
            built_from = (
                source.settings,
                context.host,
                expectation_of(definition.expect, expected),
                sources.export_patterns(definition, config),
            )
            configured[key] = ConfiguredSource(source, definition, built_from)
    known = JobKnowledge(baseline(config.measured), plans_of(config.jobs))
    return Prepared(config, context, configured, known)
