"""Reads the runbook pages: their sections and tables, and the queries, commands and panels that they name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.helpers.paths import ROOT

FOLDER = ROOT / "docs" / "runbooks"
SECTIONS = (
    "Meaning",
    "Cost to the job",
    "Distinguish the causes",
    "What to do",
    "Why it may be silent or wrong",
)
PANEL = re.compile(r"\[([^\]:]+): ([^\]]+)\]\((\.\./\.\./dashboards/[a-z-]+\.json)\)")
METRIC = re.compile(r"\b(?:[a-z_]+:)?fabric_[a-z0-9_]+\b(?::[a-z]+\b)?")
"""A metric, or a series that a rule records."""

QUERY = re.compile(r"fabric_[a-z0-9_]+|\bup\b|\bprocess_[a-z_]+")
"""What only a query has: a command names no metric."""

CHANGES = (
    *("counterpoll port enable", "dcb pfc set", "ethtool -s", "ibclearerrors", "ip link set", "modprobe"),
    *("perfquery -R", "reboot", "systemctl restart", "syncd"),
)
"""Beginnings of commands that change something: a step with one names its side effect."""

READS = frozenset(
    line.strip()
    for line in """
    cat /proc/cmdline
    cat /proc/sys/kernel/numa_balancing
    cat /sys/class/net/NETDEV/ecn/roce_rp/enable/3
    devlink health show
    dmesg -T
    ethtool -I --show-fec NETDEV
    ethtool -i NETDEV
    ethtool -m NETDEV
    fabric-exporter check-config --config.file FILE
    fabric-exporter ib diff FILE
    fabric-exporter ib topology
    fabric-exporter probe NAME --config.file FILE
    ibstat DEVICE PORT
    journalctl -u fabric-exporter
    kubectl get pods -o wide
    kubectl logs POD
    ls -l /dev/infiniband /sys/class/infiniband_verbs
    ls -l /sys/class/infiniband
    lsmod
    lspci -d 15b3:
    lspci -vv -s PCI
    mlxlink -d DEVICE -m -c
    modinfo -F version ib_uverbs
    nvidia-smi -q -d CLOCK,PERFORMANCE,POWER
    nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER,ECC
    nvidia-smi -q -d PERFORMANCE,ECC
    nvidia-smi topo -m
    perfquery -x -G 0xGUID PORT
    ping HOST
    ping NAME
    py-spy dump --pid PID
    rdma link show
    saquery -s
    show interfaces counters
    show version
    sminfo
    smpquery -G portinfo 0xGUID PORT
    systemctl status fabric-exporter
    """.strip().splitlines()
)
"""The commands of the tables of causes, each with flags that were looked up: they exist, and only read. `show` is a
switch's."""


class Row(NamedTuple):
    """A cause, where to look for it, and what is seen there."""

    cause: str
    look: str
    seen: str


class Page(NamedTuple):
    """A page: its title, and the text of each section, in order."""

    title: str
    sections: dict[str, str]

    @property
    def causes(self) -> list[Row]:
        return [Row(*cells) for cells in cells_of(self.sections["Distinguish the causes"])[1:]]

    @property
    def steps(self) -> list[str]:
        return re.findall(r"^\d+\. .+$", self.sections["What to do"], re.MULTILINE)


def paths() -> list[Path]:
    """Return the pages of alerts, without the index."""
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def parse(text: str) -> Page:
    title, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return Page(title.strip(), dict(zip(parts[::2], parts[1::2], strict=True)))


def cells_of(text: str) -> list[list[str]]:
    """Return the cells of the first table, its header first; an escaped bar is part of its cell."""
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    lines = table[0].splitlines() if table else []
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [[cell.replace(r"\|", "|") for cell in row] for row in rows if not set("".join(row)) <= {"-"}]


def spans(text: str) -> list[str]:
    """Return what is set as code."""
    return re.findall(r"`([^`]+)`", text)


def queries(page: Page) -> Iterator[str]:
    """Yield the queries of the table of causes, and those elsewhere: code with a metric and more than its name."""
    for row in page.causes:
        yield from filter(QUERY.search, spans(row.look))
    others = " ".join(text for name, text in page.sections.items() if name != "Distinguish the causes")
    for span in spans(others):
        if METRIC.search(span) and not METRIC.fullmatch(span):
            yield span


def commands(page: Page) -> list[str]:
    """Return the commands of the table of causes: code that is no query."""
    return [span for row in page.causes for span in spans(row.look) if not QUERY.search(span)]


def changes(step: str) -> bool:
    return any(span.startswith(CHANGES) for span in spans(step))


def with_any(query: str) -> str:
    """Replace the words in capitals, for which the reader puts the labels of an alert, by any value."""
    return re.sub(r'="[A-Z]+"', '=~".+"', query)
