"""The command `replay`: serve a recording of `snapshot` as an SNMP agent."""

import argparse
import asyncio
from pathlib import Path

from exporter.config.errors import UserError

HELP = "serve a recording made by snapshot as an SNMP agent on loopback"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.add_argument("recording", type=Path, metavar="FILE", help="recording made by snapshot")
    parser.add_argument(
        "--listen", default="127.0.0.1:1161", metavar="ADDRESS", help="address to listen on (default 127.0.0.1:1161)"
    )
    parser.add_argument("--community", default="public", help="accepted community (default public)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted.

    Raises:
        UserError: The address is malformed or cannot be listened on, or the recording cannot be read or has no row.
    """
    from exporter.simulator.replay import replay
    from exporter.snmp.client import parse_address

    try:
        host, port = parse_address(arguments.listen)
    except ValueError as error:
        raise UserError(f"--listen: {error}") from None
    asyncio.run(
        replay(
            arguments.recording,
            host,
            port,
            community=arguments.community,
            report=lambda line: print(line, flush=True),  # noqa: T201  # output of the command
        )
    )
    return 0
