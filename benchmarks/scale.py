"""How the parts of a large fabric grow: collectors and their broker, pollers of switches, Prometheus.

    python benchmarks/scale.py collectors --nodes 128,512,2048 --collectors 1,2,4
    python benchmarks/scale.py pollers --switches 50,200,1000 --pollers 1,2,4
    python benchmarks/scale.py prometheus --series 50000,100000,200000
    python benchmarks/scale.py sizes --nodes 100,1000,10000

All processes are real ones; hosts and switches are simulated. CPU is what the scheduler accounts, so that other work on
the machine changes it little. docs/scale.md has the figures, and what follows from them.
"""

import argparse
from collections.abc import Iterator, Sequence

import scale_collectors
import scale_pollers
import scale_prometheus
import scale_sizes


def collectors(chosen: argparse.Namespace) -> Iterator[object]:
    """Measure each number of nodes at one collector, and the most nodes at several."""
    most = max(chosen.nodes)
    single = [(nodes, 1) for nodes in chosen.nodes if 1 in chosen.collectors]
    for nodes, count in [*single, *((most, count) for count in chosen.collectors if count > 1)]:
        yield scale_collectors.measure(
            scale_collectors.Case(nodes, chosen.job_nodes, count, chosen.step, chosen.settling, chosen.seconds)
        )


def pollers(chosen: argparse.Namespace) -> Iterator[object]:
    """Measure each number of switches at one poller, and the most switches at several."""
    most = max(chosen.switches)
    single = [(switches, 1) for switches in chosen.switches if 1 in chosen.pollers]
    for switches, count in [*single, *((most, count) for count in chosen.pollers if count > 1)]:
        yield scale_pollers.measure(scale_pollers.Case(switches, count, chosen.seconds))


def prometheus(chosen: argparse.Namespace) -> Iterator[object]:
    """Measure each number of series."""
    for series in chosen.series:
        yield scale_prometheus.measure(scale_prometheus.Case(series, chosen.divide, chosen.scrapes))


def sizes(chosen: argparse.Namespace) -> Iterator[object]:
    """Compute the sizes of fabrics from what was measured."""
    yield scale_sizes.table(chosen.nodes)


def numbers(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [int(part) for part in text.split(",")]


def flags() -> argparse.ArgumentParser:
    """Return the flags; each part has its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("collectors", help="collectors and broker, for hosts that publish")
    part.set_defaults(measure=collectors)
    part.add_argument("--nodes", type=numbers, default=[128, 512, 2048], help="numbers of nodes, of eight ranks each")
    part.add_argument("--job-nodes", type=int, default=128, help="nodes of a job, where there are so many")
    part.add_argument("--collectors", type=numbers, default=[1, 2, 4], help="several: for the most nodes only")
    part.add_argument("--step", type=float, default=4.0, help="seconds of a training step")
    part.add_argument("--settling", type=float, default=60.0, help="seconds before the measurement")
    part.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    part = parts.add_parser("pollers", help="pollers of switches")
    part.set_defaults(measure=pollers)
    part.add_argument("--switches", type=numbers, default=[50, 200, 1000], help="numbers of switches, of 64 ports each")
    part.add_argument("--pollers", type=numbers, default=[1, 2, 4], help="several: for the most switches only")
    part.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    part = parts.add_parser("prometheus", help="Prometheus with the shipped rules")
    part.set_defaults(measure=prometheus)
    part.add_argument("--series", type=numbers, default=[50_000, 100_000, 200_000], help="numbers of series, at least")
    part.add_argument("--divide", type=float, default=3.0, help="factor by which all times are divided")
    part.add_argument("--scrapes", type=int, default=100, help="scrapes of each target")
    part = parts.add_parser("sizes", help="compute what fabrics need, from what was measured")
    part.set_defaults(measure=sizes)
    part.add_argument("--nodes", type=numbers, default=[100, 1000, 10_000], help="numbers of nodes")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one part."""
    chosen = flags().parse_args(arguments)
    for measured in chosen.measure(chosen):
        if measured is not None:
            print(measured, flush=True)


if __name__ == "__main__":
    main()
