"""Writes what is made from the code: docs/metrics.md from the declared metrics, and the shell completion.

    python docs/generate.py

Run it after a change of a metric or a flag; tests see to it that what is committed is current.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import shtab

from exporter import cli
from exporter.core.table import Kind, Metric
from exporter.daemon import pipeline, sources

ROOT = Path(__file__).resolve().parent.parent

SECTIONS = {
    "fabric_rdma_": "RDMA ports of this host, InfiniBand and RoCE. The sources `rdma` and `bursts` read them.",
    "fabric_nic_": "Network devices of this host that stand for hardware, and bonds. The source `nic` asks the kernel; "
    "the source `optics` reads their modules, where it is switched on.",
    "fabric_pci_": "PCI functions that ports of this host sit on. The source `pci` reads them from files of sysfs.",
    "fabric_switch_": "Ports of Ethernet switches, and the switches. The source `switch` polls what is configured.",
    "fabric_link_": "Links, seen from one end: a port of a switch, told by the source `switch`, or a device of this"
    " host, told by the source `lldp`.",
    "fabric_ib_": "Ports and nodes of InfiniBand fabrics, and the passes over them. The source `ibfabric` asks by"
    " management datagrams, where it is switched on; `guid` is that of the node.",
    "fabric_nccl_": "Jobs, their ranks and collectives. The source `nccl` hears timings of this host's jobs, from files"
    " and from jobs themselves; the source `nccl_facts` reads NCCL's logs. Where this is a collector, verdicts are of"
    " all ranks of a job.",
    "fabric_collector_": "What the source `collector` hears by MQTT.",
    "fabric_source_": "Each source, and each switch: how reading it goes.",
    "fabric_probe_": "The switch that `/probe` asked, and how that went: in the answers of that path alone.",
    "fabric_exporter_": "The exporter itself.",
    "process_": "The exporter's process, by the names that every Prometheus client library uses.",
}
"""By prefix, in this order: what the rows are."""

HEAD = """\
# Metrics

Made from the declarations by `make docs`; change those, not this file.

Values are in base units, counters are whole numbers wherever the device has whole numbers, and what a device does not
tell is absent, never 0. Counters are exported with 64 bits, also those that are narrower in the device. Every rate,
ratio and verdict is computed by the exporter from two readings and the time between them; *computed* marks them. A
column **from** names the file, statistic, object or key that a value is read from; where several are named, each is
another driver's or protocol's. Any metric can be switched off by `drop`; those marked *detail* are off until `keep`
names them, and of RDMA ports and network devices not even read before that (see [configuration](configuration.md)).
"""


def metrics_page() -> str:
    """Give the text of docs/metrics.md."""
    computed = computed_names()
    parts = [HEAD]
    homeless = [one.name for one in sources.metrics() if not one.name.startswith(tuple(SECTIONS))]
    if homeless:
        raise SystemExit(f"{homeless[0]} has no section: say in SECTIONS what the rows of its prefix are")
    for prefix, text in SECTIONS.items():
        rows = [_row(one, computed) for one in sources.metrics() if one.name.startswith(prefix)]
        table = ["| metric | type | labels | meaning | from |", "|---|---|---|---|---|", *sorted(rows)]
        parts.append(f"## {prefix}\n\n{text}\n\n" + "\n".join(table) + "\n")
    return "\n".join(parts)


def computed_names() -> set[str]:
    """Name the metrics that meaning makes of what sources read."""
    return {
        metric.name
        for definition in sources.SOURCES
        for schema in definition.schemas
        for meaning in pipeline.MEANINGS
        for metric in meaning.outputs(schema)
    }


def _row(metric: Metric, computed: set[str]) -> str:
    if metric.origins:
        origin = "<br>".join(_cell(one) for one in metric.origins)
    elif metric.name in computed:
        origin = "*computed*"
    else:
        origin = "the exporter"
    labels = ", ".join(f"`{label}`" for label in (*metric.labels, *metric.extra))
    kind = "gauge (info)" if metric.kind is Kind.INFO else metric.kind.value
    name = f"`{metric.name}`" + (" *detail*" if metric.detail else "")
    return f"| {name} | {kind} | {labels} | {_cell(metric.help)} | {origin} |"


def _cell(text: str) -> str:
    """Keep text inside its cell of a table."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")


def completions() -> Mapping[str, str]:
    """Give the completion of each shell by the name of its file."""
    parser = cli.parser()
    _complete_paths(parser)
    shells = {"bash": "fabric-exporter.bash", "zsh": "_fabric-exporter"}
    return {name: shtab.complete(parser, shell=shell) for shell, name in shells.items()}


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Have names of files and folders completed after the flags that take them."""
    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in parser._actions:  # noqa: SLF001  # argparse has no other list of its flags
        if isinstance(action.metavar, str) and action.metavar in kinds:
            vars(action)["complete"] = kinds[action.metavar]
        for command in action.choices.values() if isinstance(action.choices, dict) else ():
            if isinstance(command, argparse.ArgumentParser):
                _complete_paths(command)


def files() -> Mapping[Path, str]:
    """Give all that is made, by its place."""
    folder = ROOT / "deploy" / "completions"
    return {
        ROOT / "docs" / "metrics.md": metrics_page(),
        **{folder / name: text.rstrip() + "\n" for name, text in completions().items()},
    }


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
