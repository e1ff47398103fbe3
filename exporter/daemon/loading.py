"""Loading of the configuration, with the checks that concern several of its sections."""

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.config import jobs as configured_jobs
from exporter.config import schema as config
from exporter.config import yaml_reader
from exporter.config.errors import RuleError
from exporter.config.schema import Config
from exporter.config.shard import Shard
from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.core.table import Schema
from exporter.daemon import probe, probe_options, validation
from exporter.daemon.prepared import prepare
from exporter.daemon.probe_options import ProbeSection
from exporter.daemon.sources import (
    SECTIONS,
    SOURCES,
    export_patterns,
    metrics,
    metrics_of,
    section_path,
)
from exporter.meaning.training import plans
from exporter.outputs.web import Handlers, WebServer


def load_config(path: Path | None) -> Config:
    """Load the configuration file; without one, return the defaults. Blocks.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """
    if path is None:
        return _complete(config.default(SECTIONS), Path())
    loaded = config.load(path, SECTIONS)
    try:
        loaded = _complete(loaded, path.parent)
        _check_patterns(loaded)
        configured_jobs.check(loaded.jobs)
        validation.check_expectations(loaded, host_name(loaded), SOURCES)
        probe_options.check_probe(*probe.config_of(loaded))
    except RuleError as error:
        raise yaml_reader.error_at(path, error.steps, error.text) from None
    return loaded


def _complete(loaded: Config, folder: Path) -> Config:
    """Load the files that the configuration names, such as those of targets and baselines. Blocks.

    Raises:
        ConfigError: One of these files is invalid.
        RuleError: The configuration is invalid together with them.
    """
    sources, measured = dict(loaded.sources), list(loaded.measured)
    for definition in SOURCES:
        options = sources[definition.name]
        try:
            if definition.complete is not None:
                sources[definition.name] = definition.complete(options, folder)
            if definition.measured is not None:
                measured += definition.measured(options, folder)
        except RuleError as error:
            raise RuleError([*section_path(definition), *error.steps], error.text) from None
    return replace(loaded, sources=sources, measured=measured)


def _check_patterns(settings: Config) -> None:
    """Check that each pattern of `drop` and `keep` matches a metric.

    Raises:
        RuleError: One matches none.
    """
    every = metrics()
    probed: tuple[config.Section, Sequence[Schema]] = (ProbeSection(), probe.SCHEMAS)
    for section, schemas in (*((definition, definition.schemas) for definition in SOURCES), probed):
        drop, keep = export_patterns(section, settings)
        # The same list of `drop` may be used for all sources; `keep` applies to the metrics of this one.
        validation.check_matches([*section_path(section), "drop"], drop, every, details=False)
        validation.check_matches([*section_path(section), "keep"], keep, metrics_of(schemas), details=True)


def host_name(settings: Config) -> str:
    """Return the name of this host: of the configuration, the environment variable NODE_NAME, or the kernel."""
    return settings.host or own_name()


def own_name() -> str:
    """Return the name of this host without a configuration."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def check(config_file: Path | None, web_config_file: Path | None) -> list[str]:
    """Check configuration files without starting anything.

    Returns:
        One or more lines for each file.

    Raises:
        ConfigError: The configuration is invalid.
        WebConfigError: The web configuration is invalid.
    """
    lines = []
    if config_file is not None:
        settings = load_config(config_file)
        try:
            validation.check_classes(settings, SOURCES)
        except RuleError as error:
            raise yaml_reader.error_at(config_file, error.steps, error.text) from None
        context = Context(Host(settings.host or "", Path("/sys"), Path("/proc")))
        count = sum(not target for _, target in prepare(settings, context, Shard()).sources)
        described = [one.describe(settings.sources[one.name]) for one in SOURCES if one.describe is not None]
        lines.append(f"{config_file}: valid; {count} sources of this host, {', '.join(described)}")
        lines += [f"{config_file}: {line}" for line in plans.described(settings.jobs)]
    if web_config_file is not None:
        unused = Handlers(lambda _: (), str, lambda: None, _no_reload)
        WebServer(unused, (":0",), config_file=web_config_file)  # reads certificates and keys too
        lines.append(f"{web_config_file}: valid")
    return lines


async def _no_reload() -> None:
    """Replace the reload of a running daemon."""
