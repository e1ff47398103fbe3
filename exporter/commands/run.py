"""The command `run`: the daemon that serves metrics."""

import argparse
import asyncio
import os

from exporter.commands.flags import (
    add_config_flag,
    add_host_flags,
    add_log_flags,
    add_path_flag,
    add_web_flags,
    listen_addresses,
)
from exporter.config.errors import UserError
from exporter.daemon import log

HELP = "serve metrics (the default command)"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_web_flags(parser)
    parser.add_argument(
        "--web.systemd-socket",
        dest="systemd_socket",
        action="store_true",
        help="serve on the sockets that systemd passes (socket activation), in place of addresses",
    )
    add_log_flags(parser)
    add_config_flag(parser)
    add_host_flags(parser)
    add_path_flag(
        parser,
        "dev",
        "mount point of the host's /dev, to look for the nodes of RDMA devices (default: they are not looked for)",
    )
    parser.add_argument(
        "--shard",
        metavar="NUMBER/COUNT",
        help="index of this exporter, from 0, and the number of exporters that share the switches; each polls its own"
        " share. NUMBER may be the name of a StatefulSet's pod (default $FABRIC_SHARD, else all switches)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    from exporter.config.shard import Shard
    from exporter.daemon.daemon import Daemon
    from exporter.daemon.lookups import LookupLoop
    from exporter.daemon.settings import Settings, check_roots
    from exporter.outputs.activated_sockets import activated_sockets

    log.set_up(arguments.log_level, arguments.log_format)
    try:
        shard = Shard.from_environment() if arguments.shard is None else Shard.parse(arguments.shard)
    except UserError as error:
        raise UserError(f"--shard: {error}" if arguments.shard is not None else str(error)) from None
    if arguments.systemd_socket and arguments.listen_addresses:
        raise UserError("--web.systemd-socket and --web.listen-address exclude each other: give one of them")
    settings = Settings(
        config_file=arguments.config_file,
        listen_addresses=listen_addresses(arguments),
        sockets=tuple(activated_sockets(os.environ)) if arguments.systemd_socket else (),
        telemetry_path=arguments.telemetry_path,
        web_config_file=arguments.web_config_file,
        max_requests=arguments.max_requests,
        sysfs=arguments.sysfs,
        procfs=arguments.procfs,
        nic_replay=arguments.nic_replay,
        dev=arguments.dev,
        shard=shard,
    )
    check_roots(settings)

    async def serve() -> None:
        await Daemon(settings).run()

    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        runner.run(serve())
    return 0
