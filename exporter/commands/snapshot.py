"""The command `snapshot`: record the SNMP objects of a switch, or the ports of this host, for a bug report."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.commands.flags import add_config_flag, add_snmp_flags, add_sysfs_flag, snmp_options
from exporter.commands.terminal import print_output
from exporter.config.errors import UserError, system_errors_as_user_errors

if TYPE_CHECKING:
    from exporter.sources.switch.options import Snmp

HELP = "record a switch by SNMP, or the ports of this host, without names and addresses, for a bug report"

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    parser.set_defaults(usage_error=parser.error)
    parser.add_argument("target", nargs="?", metavar="TARGET", help="name of a configured switch, or HOST or HOST:PORT")
    parser.add_argument("output", nargs="?", type=Path, metavar="FILE", help="output file (default standard output)")
    parser.add_argument(
        "--host",
        type=Path,
        metavar="DIR",
        help="record this host's NICs and RDMA devices, instead of a switch, in a new or empty directory",
    )
    parser.add_argument(
        "--modules",
        action="store_true",
        help="with --host: record the memory of optical modules too, which takes a second for each port",
    )
    parser.add_argument("--raw", action="store_true", help="keep names, addresses and serial numbers")
    add_sysfs_flag(parser)
    add_config_flag(parser)
    add_snmp_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the recording.

    Raises:
        UserError: The switch has no SNMP options, the switch or the kernel does not answer, a secret cannot be read, or
            the output exists or cannot be written.
    """
    if arguments.host is None:
        if arguments.target is None:
            arguments.usage_error("name a switch as TARGET, or record this host with --host DIR")
        if arguments.modules:
            arguments.usage_error("--modules is for --host")
        asyncio.run(_snapshot(arguments))
    else:
        if arguments.target is not None:
            arguments.usage_error(f"record either the switch {arguments.target} or this host, not both")
        _snapshot_host(arguments)
    return 0


def _snapshot_host(arguments: argparse.Namespace) -> None:
    from exporter.commands.host_snapshot import HostReaders, snapshot_host
    from exporter.linux.nic_reader import KernelNic
    from exporter.linux.rdma_reader import KernelRdma

    folder: Path = arguments.host
    readers = HostReaders(arguments.sysfs, KernelNic, KernelRdma)
    with system_errors_as_user_errors(f"--host {folder}", "name a directory that this user can write"):
        found = snapshot_host(readers, folder, raw=arguments.raw, modules=arguments.modules, progress=_progress())
    for problem in found.problems:
        print(f"fabric-exporter: {problem}", file=sys.stderr)  # noqa: T201  # output of the command
    content = (
        "MAC addresses, GUIDs and serial numbers are in it: review it before you share it"
        if arguments.raw
        else "MAC addresses, GUIDs and serial numbers are replaced; review it all the same before you share it"
    )
    counts = f"network devices: {found.nics}, RDMA devices: {found.rdma_devices}, files of sysfs: {found.files}"
    print(f"{folder}: {counts}; {content}", file=sys.stderr)  # noqa: T201  # output of the command


async def _snapshot(arguments: argparse.Namespace) -> None:
    from exporter.snmp import recording as snmp_recording
    from exporter.snmp.anonymise import anonymise
    from exporter.snmp.errors import SnmpError
    from exporter.snmp.snapshot import snapshot
    from exporter.sources.switch.credentials import read_credentials

    address, snmp = await asyncio.to_thread(_target, arguments)
    output: Path | None = arguments.output
    if output is not None and await asyncio.to_thread(output.exists):
        raise UserError(f"{output}: exists already; name another file, or remove it")
    credentials = await asyncio.to_thread(read_credentials, snmp)
    try:
        recording = await snapshot(address, credentials, progress=_progress())
    except SnmpError as error:
        raise UserError(str(error)) from None
    rows = recording.rows if arguments.raw else anonymise(recording.rows)
    for problem in recording.problems:
        print(f"fabric-exporter: {problem}", file=sys.stderr)  # noqa: T201  # output of the command
    text = snmp_recording.dump(rows)
    if output is None:
        print_output([text.removesuffix("\n")])
        return
    with system_errors_as_user_errors(str(output), "name a file in a folder that this user can write"):
        await asyncio.to_thread(output.write_text, text, "ascii")
    content = (
        "names, addresses and serial numbers are in it: review it before you share it"
        if arguments.raw
        else "names, addresses and serial numbers are replaced; review it all the same before you share it"
    )
    print(f"{output}: {len(rows)} rows; {content}", file=sys.stderr)  # noqa: T201  # output of the command


def _target(arguments: argparse.Namespace) -> "tuple[str, Snmp]":
    """Return address and SNMP options of the switch: those of the flags, else those of the configuration. Blocks."""
    from exporter.daemon.loading import load_config
    from exporter.snmp.client import parse_address
    from exporter.sources.switch.targets import resolve_targets

    flags, name = snmp_options(arguments), arguments.target
    if arguments.config_file is not None:
        for target, _ in resolve_targets(load_config(arguments.config_file).sources["switch"]):
            if target.name == name and target.snmp is not None:
                return target.snmp.address or target.address, flags or target.snmp
    if flags is None:
        raise UserError(
            f"{name!r}: no SNMP options; name a switch of --config.file that has snmp, or give"
            " --snmp.community-file, or --snmp.version=3 and --snmp.user"
        )
    try:
        parse_address(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    return name, flags


def _progress() -> Callable[[str], None]:
    """Return a function that prints progress in grey on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda line: print(f"{_DIM}{line}{_PLAIN}", file=sys.stderr)  # noqa: T201  # output of the command
