"""What a configuration needs, built and not yet in use: a reload that fails here changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from exporter.config.errors import ConfigError
from exporter.config.schema import Config, Expect
from exporter.config.shard import Shard
from exporter.core.definition import Context, PollRows, SourceSteps
from exporter.core.source import Source
from exporter.daemon import sources
from exporter.daemon.pipeline import Expectation, expectation_of
from exporter.meaning.training.baseline import baseline
from exporter.meaning.training.jobs import JobKnowledge
from exporter.meaning.training.link_limits import HostLinks, Links
from exporter.meaning.training.plans import plans_of
from exporter.mqtt.options import SECTION as MQTT
from exporter.mqtt.options import MqttOptions

SourceKey: TypeAlias = tuple[str, str]
"""Name and target of a source."""


class ConfiguredSource(NamedTuple):
    """A source that was built and does not run.

    Attributes:
        source: The source.
        polls: Rows about its polls; None where its kind has none.
        steps: Steps of its kind of source.
        expected: Expected speed and number of its links.
        drop: Patterns of metrics that are not exported.
        keep: Patterns of details that are exported.
        built_from: What it was built from: a reload keeps a running source where this is equal.
    """

    source: Source
    polls: PollRows | None
    steps: SourceSteps
    expected: Expectation
    drop: tuple[str, ...]
    keep: tuple[str, ...]
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
    expected = config.expect.for_host(context.host.name)
    context = replace(context, sections=config.sources, expected=expected)
    configured: dict[SourceKey, ConfiguredSource] = {}
    for definition in sources.SOURCES:
        for source in sources.build_sources(definition, context):
            if source.target and not shard.owns(source.target):
                continue
            key = (source.name, source.target)
            if key in configured:
                raise ConfigError(f"{sources.section_name(definition)}: {source.target!r} is named twice")
            links = expectation_of(definition.expect, expected)
            drop, keep = sources.export_patterns(definition, config)
            own = SourceSteps() if definition.steps is None else definition.steps(source, context)
            built_from = (source.settings, context.host, links, drop, keep)
            configured[key] = ConfiguredSource(source, definition.polls, own, links, drop, keep, built_from)
    of_hosts = Links(ExpectedLinks(config.expect), config.expect.bandwidth_share)
    known = JobKnowledge(baseline(config.measured), of_hosts, plans_of(config.jobs))
    return Prepared(config, context, configured, known)


@dataclass(frozen=True, slots=True)
class ExpectedLinks:
    """The links that hosts should have by the configuration; equal if that is."""

    expect: Expect

    def __call__(self, host: str) -> HostLinks | None:
        """Return the links of a host; None if their speed is not configured."""
        own = self.expect.for_host(host)
        return None if own.rdma_speed is None else HostLinks(own.rdma_speed, own.rdma_ports or None)
