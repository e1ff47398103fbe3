"""The command `hook`: print fabric_timing.py, the module that a training job imports."""

import argparse
from importlib import resources
from pathlib import Path

from exporter.commands.terminal import print_output
from exporter.config.errors import system_errors_as_user_errors

HELP = "print fabric_timing.py, which reports the collectives of a training job that imports it"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument("--output", type=Path, metavar="FILE", help="output file (default standard output)")


def run(arguments: argparse.Namespace) -> int:
    """Write the module to the output file, or to standard output."""
    text = (resources.files("exporter.hook") / "fabric_timing.py").read_text(encoding="utf-8")
    if arguments.output is None:
        print_output([text.removesuffix("\n")])
    else:
        with system_errors_as_user_errors(arguments.output, "name a file in a folder that this user can write"):
            arguments.output.write_text(text, encoding="utf-8")
    return 0
