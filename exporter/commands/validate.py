"""The command `validate`: which nodes and links are slow, by results of nccl-tests and perftest of many nodes."""

import argparse
import errno
import json
import sys
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.commands.flags import count_type, flag_type
from exporter.commands.judging import status_of
from exporter.config.errors import UserError, system_errors_as_user_errors
from exporter.config.units import BitRate, ByteRate

if TYPE_CHECKING:
    from exporter.meaning.benchmarks.judgement import Judgement
    from exporter.meaning.benchmarks.marks import Limits
    from exporter.meaning.benchmarks.results import Run

HELP = "judge results of nccl-tests and perftest of many nodes: which nodes and links are slow or wrong"

LINKS = MappingProxyType(
    {
        "1gbe": "1 GbE TCP",
        "10gbe": "10 GbE TCP",
        "25gbe": "25 GbE TCP",
        "100gbe": "100 GbE TCP",
        "edr": "100 GbE RoCE, EDR",
        "hdr": "200 GbE RoCE, HDR",
        "ndr": "400 GbE RoCE, NDR",
        "xdr": "800 GbE RoCE, XDR",
        "roce100": "100 GbE RoCE, EDR",
        "roce200": "200 GbE RoCE, HDR",
        "roce400": "400 GbE RoCE, NDR",
        "roce800": "800 GbE RoCE, XDR",
    }
)
"""Values of --technology, and the keys of `estimates.TECHNOLOGIES`, which is not loaded for the help."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="outputs of nccl-tests, rccl-tests or perftest")
    parser.add_argument(
        "--threshold",
        type=_share,
        default=0.9,
        metavar="SHARE",
        help="share of the median, and of what the links allow, below which a result fails (default 0.9)",
    )
    link = parser.add_mutually_exclusive_group()
    link.add_argument("--technology", choices=tuple(LINKS), help="links of a node, for what they allow")
    link.add_argument(
        "--link-speed", type=flag_type(BitRate.parse), metavar="SPEED", help="or their speed, such as 400Gb/s"
    )
    parser.add_argument("--links", type=count_type, default=8, metavar="COUNT", help="links of a node (default 8)")
    parser.add_argument(
        "--mark",
        type=flag_type(ByteRate.parse),
        metavar="RATE",
        help="bus bandwidth that all have to reach, such as 440GB/s (default marks of public checkers)",
    )
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="write the results between nodes, for sources.nccl.baseline"
    )
    parser.add_argument("--strict", action="store_true", help="warnings and what cannot be judged fail too")
    parser.add_argument("--all", action="store_true", help="print all results that are fine, and not only the first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings.

    Returns:
        Exit status: 0 nothing fails, 1 something does, 2 nothing could be judged, or the command itself failed.
    """
    return status_of(partial(_run, arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UserError: There is nothing for the baseline, or it cannot be written.
    """
    from exporter.commands.terminal import print_output
    from exporter.commands.validate_files import read_runs
    from exporter.commands.validate_output import as_json, as_text
    from exporter.meaning.benchmarks.judgement import judge

    runs = read_runs(arguments.files)
    limits = _limits(arguments)
    found = judge(runs, limits)
    if arguments.json:
        print_output([json.dumps(as_json(found, runs, limits), indent=1)])
    else:
        print_output(as_text(found, runs, shows_all=arguments.all))
    if arguments.baseline is not None:
        _write_baseline(arguments.baseline, runs, found)
    if all(one.refused for one in runs):
        raise UserError("none of the files can be judged; give outputs of nccl-tests, rccl-tests or perftest")
    return _status(found, strict=arguments.strict)


def _limits(arguments: argparse.Namespace) -> "Limits":
    from exporter.meaning.benchmarks.marks import Limits
    from exporter.meaning.training.estimates import REACHED, TECHNOLOGIES

    line = achievable = None
    if arguments.technology is not None:
        line, achievable = TECHNOLOGIES[LINKS[arguments.technology]]
    elif arguments.link_speed is not None:
        line, achievable = arguments.link_speed, arguments.link_speed * REACHED
    return Limits(arguments.threshold, line, achievable, arguments.links, arguments.mark)


def _status(found: "Judgement", *, strict: bool) -> int:
    from exporter.meaning.benchmarks.results import Verdict

    bad = {Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN} if strict else {Verdict.FAIL}
    return int(any(one.verdict in bad for one in found.findings))


def _write_baseline(path: Path, runs: "list[Run]", found: "Judgement") -> None:
    """Replace the file by the baseline, in one step.

    Raises:
        UserError: There is nothing for it, or it cannot be written.
    """
    from exporter.meaning.benchmarks.baseline import network_baseline
    from exporter.meaning.benchmarks.results import Verdict
    from exporter.nccl.baseline_json import baseline_json
    from exporter.nccl.nccl_tests import Baseline

    failed = {
        source for one in found.findings if one.verdict is Verdict.FAIL or one.check == "file" for source in one.sources
    }
    values = network_baseline(runs, failed)
    if not values:
        raise UserError(
            "--baseline: no run over two nodes or more, with the name of its collective, passed: nothing was written;"
            " run all_reduce_perf over two nodes or more"
        )
    with system_errors_as_user_errors(f"--baseline: {path}", "name a file in a directory that this user can write"):
        replace_file(path, baseline_json({key: Baseline(*one) for key, one in values.items()}))
    kinds = ", ".join(sorted({kind for kind, _ in values}))
    print(f"baseline of {kinds}, {len(values)} sizes, written to {path}", file=sys.stderr)  # noqa: T201  # not of the table


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step; it remains as it is if that fails.

    Raises:
        OSError: It cannot be written.
    """
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share between 0 and 1, such as 0.9")
    return share
