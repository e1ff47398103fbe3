"""Sizes of the parts for a fabric of any size, computed from what `scale.py` measured.

    python benchmarks/scale.py sizes --nodes 100,1000,10000

A fabric has nodes of eight rails, and switches of 64 ports without oversubscription: two levels up to 2,048 rails,
else three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

RAILS = 8
"""Of a node, each with a rank."""

RADIX = 64
"""Ports of a switch."""

SCRAPE, PUBLISH, POLL = 15, 5, 15
"""Seconds between scrapes, batches of a host, and polls of a switch."""

DAY = 86_400

# Measured; docs/scale.md has the tables.

NODE_SERIES, NODE_BYTES = 1311, 10_500
"""Series of a node with eight ranks, and bytes of its page after compression."""

PORT_SERIES, PORT_BYTES, PORT_SCRAPE = 41.3, 400, 28e-6
"""Series of a switch port, their bytes after compression, and CPU seconds of the poller for them in a scrape."""

POLL_CPU, SWITCH_MIB, POLLER_MIB = 8.0e-3, 1.35, 45
"""CPU seconds of a poll of a switch, MiB of a switch in a poller that is scraped, and of a poller without any."""

RANK_SERIES, RANK_BYTES = 3.1, 24
"""Series of a rank at a collector, and their bytes after compression."""

OPERATION_CPU, BATCH_CPU, RANK_MIB, COLLECTOR_MIB = 14e-6, 550e-6, 0.036, 45
"""CPU seconds of an operation, and of a batch besides; MiB of a rank, and of a collector without any."""

BATCH_BYTES, BROKER_CPU = 2690, 75e-6
"""Bytes of a batch of a host, and CPU seconds of the broker to receive and deliver it."""

SERIES_KIB, SAMPLE_CPU, SAMPLE_BYTES, RULES_CPU = 6.0, 2.1e-6, 3.4, 33e-3
"""Of Prometheus: KiB of a series, CPU seconds and bytes on disk of a sample, and CPU seconds of an evaluation for each
node."""

# Chosen, so that there is room for about twice as much.

OPERATIONS = 5
"""Operations of a rank in a second: 20 in a step of four seconds."""

POLLER_SWITCHES = 250

COLLECTOR_OPERATIONS = 20_480
SERVER_SERIES = 2_000_000
SERVER_NODES = 500


@dataclass(frozen=True, slots=True)
class Size:
    """What a fabric of so many nodes needs."""

    nodes: int

    @property
    def ranks(self) -> int:
        """Ranks, and ports of nodes."""
        return self.nodes * RAILS

    @property
    def switches(self) -> int:
        """Switches of two levels, or of three."""
        ways = 3 if self.ranks <= RADIX * RADIX // 2 else 5
        return ceil(ways * self.ranks / RADIX)

    @property
    def pollers(self) -> int:
        """Pollers."""
        return ceil(self.switches / POLLER_SWITCHES)

    @property
    def collectors(self) -> int:
        """Collectors."""
        return ceil(self.ranks * OPERATIONS / COLLECTOR_OPERATIONS)

    @property
    def series(self) -> tuple[float, float, float]:
        """Series of nodes, of switches, and of collectors."""
        return self.nodes * NODE_SERIES, self.switches * RADIX * PORT_SERIES, self.ranks * RANK_SERIES

    @property
    def servers(self) -> int:
        """Prometheus servers."""
        return max(ceil(sum(self.series) / SERVER_SERIES), ceil(self.nodes / SERVER_NODES))

    @property
    def scraped(self) -> float:
        """Bytes of all pages together, compressed."""
        return self.nodes * NODE_BYTES + self.switches * RADIX * PORT_BYTES + self.ranks * RANK_BYTES


def table(nodes: Sequence[int]) -> str:
    """Return the table of fabrics of so many nodes, in Markdown."""
    columns = [_cells(Size(one)) for one in nodes]
    lines = [["nodes", *(f"{one:,}" for one in nodes)], ["---"] * (len(nodes) + 1)]
    lines += [[name, *(dict(column)[name] for column in columns)] for name, _ in columns[0]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(size: Size) -> list[tuple[str, str]]:
    """Return names and values of the rows."""
    return [
        ("ranks", f"{size.ranks:,}"),
        ("switches of 64 ports", f"{size.switches:,}"),
        ("series of nodes, of switches, of collectors", ", ".join(map(_rounded, size.series))),
        ("scrapes, Mbit/s", f"{size.scraped / SCRAPE * 8 / 1e6:.1f}"),
        *_of_pollers(size),
        *_of_collectors(size),
        *_of_broker(size),
        *_of_servers(size),
    ]


def _of_pollers(size: Size) -> list[tuple[str, str]]:
    switches = size.switches / size.pollers
    cores = switches / POLL * POLL_CPU + switches * RADIX * PORT_SCRAPE / SCRAPE
    return [
        ("**pollers of switches**", f"**{size.pollers}**"),
        ("switches of each", f"{switches:.0f}"),
        ("cores, MiB of each", f"{cores:.2f}, {POLLER_MIB + switches * SWITCH_MIB:.0f}"),
    ]


def _of_collectors(size: Size) -> list[tuple[str, str]]:
    ranks = size.ranks / size.collectors
    cores = ranks * OPERATIONS * OPERATION_CPU + ranks / RAILS / PUBLISH * BATCH_CPU
    memory = COLLECTOR_MIB + ranks * RANK_MIB
    return [
        ("**collectors**", f"**{size.collectors}**"),
        ("ranks of each", f"{ranks:,.0f}"),
        ("cores, MiB of a collector", f"{cores:.2f}, {memory:.0f}"),
    ]


def _of_broker(size: Size) -> list[tuple[str, str]]:
    batches = size.nodes / PUBLISH
    return [
        ("**broker**: connections", f"{size.nodes + size.collectors:,}"),
        ("batches a second", f"{batches:,.0f}"),
        ("Mbit/s in, and as much out", f"{batches * BATCH_BYTES * 8 / 1e6:.1f}"),
        ("cores of the broker", f"{batches * BROKER_CPU:.2f}"),
        ("messages in a minute without a collector", f"{60 * batches / size.collectors:,.0f}"),
    ]


def _of_servers(size: Size) -> list[tuple[str, str]]:
    series, nodes = sum(size.series) / size.servers, size.nodes / size.servers
    cores = series / SCRAPE * SAMPLE_CPU + nodes * RULES_CPU / SCRAPE
    return [
        ("**Prometheus servers**", f"**{size.servers}**"),
        ("series of each", _rounded(series)),
        ("samples a second of each", f"{series / SCRAPE:,.0f}"),
        ("cores, GiB of a server", f"{cores:.2f}, {series * SERIES_KIB / 2**20:.1f}"),
        ("GB of disk a day of each", f"{series / SCRAPE * DAY * SAMPLE_BYTES / 1e9:.1f}"),
    ]


def _rounded(number: float) -> str:
    """Return a number with two digits or three, in thousands or millions."""
    if number >= 1e6:
        return f"{number / 1e6:.1f} M" if number < 1e8 else f"{number / 1e6:.0f} M"
    return f"{number / 1e3:.0f} k" if number >= 1e4 else f"{number / 1e3:.1f} k"
