"""The command `probe`: poll one switch once and print the result."""

import argparse
import asyncio
import sys

from exporter.commands.flags import add_config_flag, add_snmp_flags, snmp_options
from exporter.commands.terminal import print_output
from exporter.config.errors import UserError

HELP = "poll one switch once and print the result"

TIMEOUT_SECONDS = 60.0
"""Time limit of the probe; longer than that of a scrape, since a person waits at a terminal."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument("target", metavar="TARGET", help="name of a configured switch, or HOST or HOST:PORT")
    add_config_flag(parser)
    parser.add_argument("--module", default="", metavar="NAME", help="module of the configuration, or SNMP profile")
    parser.add_argument("--auth", default="", metavar="NAME", help="credentials of the configuration")
    parser.add_argument(
        "--metrics", action="store_true", help="print the metrics to standard output, the report to standard error"
    )
    add_snmp_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return 0 where the switch could be read, else 1."""
    return asyncio.run(_probe(arguments))


async def _probe(arguments: argparse.Namespace) -> int:
    from exporter.core.definition import SharedObjects
    from exporter.daemon.loading import load_config
    from exporter.daemon.probe import ProbeRefusedError, make_prober
    from exporter.outputs.text import Renderer

    prober = make_prober(load_config(arguments.config_file), SharedObjects(), trusted=True)
    auth = arguments.auth
    if (snmp := snmp_options(arguments)) is not None:
        auth = prober.add_auth(snmp)
    try:
        result = await prober.probe(arguments.target, arguments.module, auth, TIMEOUT_SECONDS)
    except ProbeRefusedError as error:
        raise UserError(str(error)) from None
    finally:
        await prober.close()
    if arguments.metrics:
        print_output([b"".join(Renderer(openmetrics=False).render(result.tables)).decode().removesuffix("\n")])
        print(result.report, file=sys.stderr)  # noqa: T201  # the output are the metrics
    else:
        print_output([result.report])
    return 0 if result.success else 1
