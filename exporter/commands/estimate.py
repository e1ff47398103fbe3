"""The command `estimate`: arithmetic of sizing, what the network costs a training step with each technology."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from exporter.commands.flags import count_type, flag_type
from exporter.commands.scrapes import url_type
from exporter.commands.terminal import print_output
from exporter.config.errors import UserError
from exporter.config.units import Amount, ByteCount, ByteRate, Duration

if TYPE_CHECKING:
    from exporter.meaning.training.estimates import Clos, Estimate, Sizing

HELP = "estimate what the network costs a training step with different links, and the switches for that"

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
"""Keys of `step_budget.BYTES`, which is not loaded for the help."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--parameters", type=flag_type(Amount.parse), metavar="COUNT", help="parameters, such as 7B")
    size.add_argument(
        "--bytes", type=flag_type(ByteCount.parse), metavar="SIZE", help="bytes of gradients, such as 440MB"
    )
    size.add_argument(
        "--measured",
        nargs="+",
        type=url_type,
        metavar="URL",
        help="metrics of exporters, of which a running job's bytes and times are taken",
    )
    parser.add_argument("--train-job", metavar="NAME", help="the job, where the exporters have several")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16", help="of gradients (default bf16)")
    parser.add_argument("--ranks", type=count_type, default=8, metavar="COUNT", help="GPUs that sum them (default 8)")
    parser.add_argument(
        "--model",
        choices=["payload", "ring", "tree", "sharp"],
        default="ring",
        help="what each GPU sends: the gradients once (payload), or as AllReduce does (default ring)",
    )
    parser.add_argument(
        "--hierarchical",
        action="store_true",
        help="the GPUs of a host share the rings, so that each link carries a part, as with NCCL",
    )
    parser.add_argument("--links", type=count_type, default=8, metavar="COUNT", help="links of a host (default 8)")
    parser.add_argument(
        "--ranks-per-host", type=count_type, default=8, metavar="COUNT", help="GPUs that share them (default 8)"
    )
    parser.add_argument(
        "--oversubscription", type=_ratio, default=1.0, metavar="RATIO", help="of leaves, such as 2 (default 1)"
    )
    parser.add_argument(
        "--rate",
        type=flag_type(ByteRate.parse),
        action="append",
        default=[],
        metavar="RATE",
        help="rate of a GPU, such as 11GB/s or 400Gb/s, repeatable (default rates of usual links)",
    )
    parser.add_argument("--compute", type=flag_type(Duration.parse), metavar="DURATION", help="computing of a step")
    parser.add_argument("--step", type=flag_type(Duration.parse), metavar="DURATION", help="wanted time of a step")
    parser.add_argument("--steps", type=count_type, metavar="COUNT", help="steps of the training")
    parser.add_argument("--radix", type=_radix, metavar="PORTS", help="ports of a switch, for their number")
    parser.add_argument(
        "--rails", type=count_type, default=1, metavar="COUNT", help="networks beside each other (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the estimates.

    Raises:
        UserError: The network needs more levels of switches than are computed, or the measured job is not known.
    """
    from exporter.meaning.training.estimates import TECHNOLOGIES, estimate, needed_rate

    sizing, compute, now = _given(arguments) if arguments.measured is None else _measured(arguments)
    rates = [(_rate(rate), rate / sizing.oversubscription) for rate in arguments.rate]
    rates = rates or [(name, sizing.share(one.achievable)) for name, one in TECHNOLOGIES.items()]
    found = [(name, estimate(sizing, rate, compute, arguments.steps)) for name, rate in rates]
    if now is not None:
        training = None if arguments.steps is None or now.step is None else now.step * arguments.steps
        found.insert(0, ("measured", now._replace(training=training)))
    needed = None if arguments.step is None else needed_rate(sizing, arguments.step)
    switches = None if arguments.radix is None else _switches(arguments, sizing)
    if arguments.json:
        print_output([json.dumps(_as_json(sizing, found, needed, switches), indent=1)])
    else:
        print_output(_as_text(sizing, found, needed, switches))
    return 0


def _given(arguments: argparse.Namespace) -> "tuple[Sizing, float | None, Estimate | None]":
    """Return the job, its time of computing, and no measured step."""
    from exporter.meaning.training.estimates import Sizing, gradients_of

    sizing = Sizing(
        arguments.bytes or gradients_of(arguments.parameters, arguments.precision),
        arguments.ranks,
        arguments.model,
        arguments.links,
        arguments.ranks_per_host,
        arguments.oversubscription,
        arguments.hierarchical,
    )
    return sizing, arguments.compute, None


def _measured(arguments: argparse.Namespace) -> "tuple[Sizing, float | None, Estimate | None]":
    """Return the same of a running job, and its step as it is.

    Raises:
        UserError: The job, or its bytes, are not known.
    """
    from exporter.commands.estimate_measured import read_job

    job = read_job(arguments.measured, arguments.train_job, arguments.links, arguments.oversubscription)
    return job.sizing, job.compute if arguments.compute is None else arguments.compute, job.now


def _switches(arguments: argparse.Namespace, sizing: "Sizing") -> "Clos":
    from exporter.meaning.training.estimates import clos

    ports = -(-sizing.hosts * sizing.links // arguments.rails)
    try:
        return clos(ports, arguments.radix, sizing.oversubscription, arguments.rails)
    except ValueError as error:
        raise UserError(f"--radix: {error}; give switches of more ports, or more --rails") from None


def _as_json(
    sizing: "Sizing", found: Sequence[tuple[str, "Estimate"]], needed: float | None, switches: "Clos | None"
) -> dict[str, Any]:
    """Return all values in base units; what is not known is missing."""
    estimates = [
        {
            "link": name,
            "bytes_per_second": one.rate,
            "network_seconds": one.network,
            "step_seconds": one.step,
            "compute_ratio": one.compute_share,
            "training_seconds": one.training,
        }
        for name, one in found
    ]
    result = {
        "gradient_bytes": sizing.gradients,
        "traffic_bytes": sizing.traffic,
        "needed_bytes_per_second": needed,
        "switches": None if switches is None else {**switches._asdict(), "switches": switches.switches},
        "estimates": [{key: value for key, value in one.items() if value is not None} for one in estimates],
    }
    return {key: value for key, value in result.items() if value is not None}


def _as_text(
    sizing: "Sizing", found: Sequence[tuple[str, "Estimate"]], needed: float | None, switches: "Clos | None"
) -> Iterator[str]:
    if sizing.gradients is not None:
        yield f"gradients            {_bytes(sizing.gradients)}"
    model = "measured" if sizing.gradients is None else sizing.model
    yield f"each GPU sends       {_bytes(sizing.traffic)} a step ({model}, {sizing.ranks} GPUs)"
    if needed is not None:
        yield f"each GPU needs       {_rate(needed)}, if all of it is hidden behind computing"
    if switches is not None:
        parts = (("leaves", switches.leaves), ("aggregation", switches.aggregation), ("spines", switches.spines))
        shown = " + ".join(f"{count} {name}" for name, count in parts if count)
        times = f", {switches.networks} times" if switches.networks > 1 else ""
        yield f"switches             {switches.switches}: {shown}{times}"
    yield ""
    yield from _table(found)


def _table(found: Sequence[tuple[str, "Estimate"]]) -> Iterator[str]:
    rows = [["link", "a GPU gets", "network of a step", "step", "GPUs compute", "training"]]
    for name, one in found:
        share = "" if one.compute_share is None else f"{one.compute_share:.1%}"
        hours = "" if one.training is None else f"{one.training / 3600:.3g} h"
        step = "" if one.step is None else _seconds(one.step)
        rows.append([name, _rate(one.rate), _seconds(one.network), step, share, hours])
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    for row in rows:
        first, *others = kept
        cells = [row[first].ljust(widths[first]), *(row[place].rjust(widths[place]) for place in others)]
        yield "  ".join(cells).rstrip()


def _bytes(count: float) -> str:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.3g} B"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _rate(rate: float) -> str:
    return f"{_bytes(rate)}/s"


def _radix(text: str) -> int:
    if (ports := count_type(text)) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two ports at least")
    return ports


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 1 <= ratio <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a ratio of 1 to 1000, such as 2 for 2:1")
    return ratio
