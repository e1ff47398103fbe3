"""The flags of the commands `ib topology` and `ib diff`; ib.py imports the InfiniBand source, which is slow."""

import argparse
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.config.errors import UserError

if TYPE_CHECKING:
    from exporter.commands.ib import FabricAccess

HELP = "print an InfiniBand fabric, or how it differs from a saved one"

TOPOLOGY_HELP = "print the fabric with its degraded, erroneous and inactive links"
DIFF_HELP = "print how the fabric, or a second file, differs from one saved by `ib topology --json`"

LIMITS = MappingProxyType(
    {
        "window": "maximum number of MADs in flight (default 64)",
        "per_destination": "maximum number of MADs in flight to one node (default 1)",
        "per_second": "maximum number of MADs sent per second (default 10000)",
        "retries": "number of retries (default 2)",
    }
)
"""Keys of `sources.ibfabric` that are whole numbers, as flags."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands and their flags."""
    commands = parser.add_subparsers(dest="ib_command", metavar="COMMAND", required=True)
    topology = commands.add_parser("topology", help=TOPOLOGY_HELP, description=TOPOLOGY_HELP, allow_abbrev=False)
    diff = commands.add_parser("diff", help=DIFF_HELP, description=DIFF_HELP, allow_abbrev=False)
    form = topology.add_mutually_exclusive_group()
    form.add_argument("--dot", dest="form", action="store_const", const="dot", help="print a graph for Graphviz")
    form.add_argument("--json", dest="form", action="store_const", const="json", help="print the input of `ib diff`")
    topology.set_defaults(form="tree")
    topology.add_argument(
        "--no-counters", dest="counters", action="store_false", help="do not read the error counters of ports"
    )
    diff.add_argument("before", type=Path, metavar="FILE", help="saved fabric")
    diff.add_argument(
        "after", nargs="?", type=Path, metavar="FILE2", help="fabric saved later (default the fabric as it is now)"
    )
    diff.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    for command in (topology, diff):
        _add_sweep_flags(command)


def _add_sweep_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="", metavar="NAME", help="local adapter (default the first active one)")
    parser.add_argument("--port", type=int, metavar="NUMBER", help="port of the adapter (default the first active one)")
    parser.add_argument(
        "--m-key-file", dest="m_key_file", metavar="FILE", help="file that contains the M_Key of a protected fabric"
    )
    parser.add_argument("--timeout", metavar="DURATION", help="timeout of a MAD (default 500ms)")
    for name, text in LIMITS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=int, metavar="NUMBER", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run `ib topology` or `ib diff`; the exit status of the latter is that of diff."""
    from exporter.commands import ib

    try:
        sweep = _sweep_options(arguments)
    except UserError as error:
        print(f"fabric-exporter: {error}", file=sys.stderr)  # noqa: T201  # as cli.py does
        return ib.FAILED
    if arguments.ib_command == "diff":
        return ib.diff(sweep, arguments.before, arguments.after, as_json=arguments.as_json)
    return ib.topology(sweep, arguments.form, counters=arguments.counters)


def _sweep_options(arguments: argparse.Namespace) -> "FabricAccess":
    """Return the options of the sweep.

    Raises:
        UserError: A limit is invalid.
    """
    from exporter.commands.ib import FabricAccess
    from exporter.config.units import Duration
    from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice

    limits = {name: value for name in LIMITS if (value := getattr(arguments, name)) is not None}
    if arguments.timeout is not None:
        try:
            limits["timeout"] = Duration.parse(arguments.timeout)
        except ValueError as error:
            raise UserError(f"--timeout is {arguments.timeout!r}; {error}") from None
    try:
        options = IbFabricOptions(m_key_file=arguments.m_key_file, **limits)
        choice = PortChoice(device=arguments.device, port=arguments.port)
    except ValueError as error:  # of their validation; the text begins with the key
        raise UserError(f"--{str(error).replace('_', '-')}") from None
    return FabricAccess(choice, options)
