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
from exporter.core.source import Host
from exporter.core.table import Schema
from exporter.daemon import validation
from exporter.daemon.probe_options import Section
from exporter.daemon.sources import (
    SECTIONS,
    SOURCES,
    build_sources,
    export_patterns,
    metrics,
    metrics_of,
    section_path,
)
from exporter.meaning.training import plans
from exporter.outputs.web import Handlers, WebServer
from exporter.sources.nccl import baseline as nccl_baseline
from exporter.sources.nccl import source as nccl
from exporter.sources.switch import source as switch
from exporter.sources.switch.targets import resolve_targets


def load_config(path: Path | None) -> Config:
    """Load the configuration file; without one, return the defaults. Blocks.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """
    if path is None:
        return config.default(SECTIONS)
    loaded = config.load(path, SECTIONS)
    try:
        loaded = _load_included_files(loaded, path.parent)
        _check_patterns(loaded)
        configured_jobs.check(loaded.jobs)
        validation.check_expectations(loaded, host_name(loaded))
        validation.check_probe(loaded.sources["probe"], loaded.sources[switch.DEFINITION.name])
    except RuleError as error:
        raise yaml_reader.error_at(path, error.steps, error.text) from None
    return loaded


def _load_included_files(loaded: Config, folder: Path) -> Config:
    """Load the files that the configuration names, such as those of targets and baselines. Blocks.

    Raises:
        ConfigError: One of these files is invalid.
        RuleError: The configuration is invalid together with them.
    """
    sources = dict(loaded.sources)
    for definition in SOURCES:
        if definition.complete is not None:
            try:
                sources[definition.name] = definition.complete(sources[definition.name], folder)
            except RuleError as error:
                raise RuleError([*section_path(definition), *error.steps], error.text) from None
    try:
        measured = nccl_baseline.load_baselines(sources[nccl.DEFINITION.name].baseline, folder)
    except RuleError as error:
        raise RuleError([*section_path(nccl.DEFINITION), *error.steps], error.text) from None
    return replace(loaded, sources=sources, measured=measured)


def _check_patterns(settings: Config) -> None:
    """Check that each pattern of `drop` and `keep` matches a metric.

    Raises:
        RuleError: One matches none.
    """
    every = metrics()
    probed: tuple[config.Section, Sequence[Schema]] = (Section(), switch.DEFINITION.schemas)
    for section, schemas in (*((definition, definition.schemas) for definition in SOURCES), probed):
        drop, keep = export_patterns(section, settings)
        # The same list of `drop` may be used for all sources; `keep` applies to the metrics of this one.
        validation.check_matches([*section_path(section), "drop"], drop, every, details=False)
        validation.check_matches([*section_path(section), "keep"], keep, metrics_of(schemas), details=True)


def host_name(settings: Config) -> str:
    """Return the name of this host: of the configuration, the environment variable NODE_NAME, or the kernel."""
    return settings.host or os.environ.get("NODE_NAME") or socket.gethostname()


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
            validation.check_classes(settings)
        except RuleError as error:
            raise yaml_reader.error_at(config_file, error.steps, error.text) from None
        host = Host(settings.host or "", Path("/sys"), Path("/proc"))
        sources = [source for definition in SOURCES for source in build_sources(definition, settings, host)]
        count = sum(not source.target for source in sources)
        switches = [target for target, _ in resolve_targets(settings.sources[switch.DEFINITION.name])]
        lines.append(f"{config_file}: valid; {count} sources of this host, {validation.count_targets(switches)}")
        lines += [f"{config_file}: {line}" for line in plans.described(settings.jobs)]
    if web_config_file is not None:
        unused = Handlers(lambda _: (), str, lambda: None, _no_reload)
        WebServer(unused, (":0",), config_file=web_config_file)  # reads certificates and keys too
        lines.append(f"{web_config_file}: valid")
    return lines


async def _no_reload() -> None:
    """Replace the reload of a running daemon."""
