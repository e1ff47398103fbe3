"""The command `check-config`: check configuration files without starting anything."""

import argparse
from pathlib import Path

from exporter.commands.flags import add_config_flag
from exporter.commands.terminal import print_output
from exporter.config.errors import UserError

HELP = "check the configuration files; print the first error and exit with 1 if one is wrong"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_config_flag(parser)
    parser.add_argument(
        "--web.config.file", dest="web_config_file", type=Path, metavar="FILE", help="web configuration file to check"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each valid file."""
    from exporter.daemon import loading

    if arguments.config_file is None and arguments.web_config_file is None:
        raise UserError("nothing to check: give --config.file or --web.config.file")
    print_output(loading.check(arguments.config_file, arguments.web_config_file))
    return 0
