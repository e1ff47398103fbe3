"""The commands `snapshot` and `replay`: a recording of a switch for a report, and a switch made of a recording."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporter.config.secret import SecretError
from exporter.config.yaml_reader import ConfigError
from exporter.simulator.replay import replay
from exporter.snmp import recording as snmp_recording
from exporter.snmp.anonymise import anonymise
from exporter.snmp.client import parse_address
from exporter.snmp.errors import SnmpError
from exporter.snmp.snapshot import snapshot
from exporter.sources.switch.credentials import read_credentials
from exporter.sources.switch.options import Snmp
from exporter.sources.switch.targets import SwitchOptions, resolve_targets

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What the command line of `snapshot` says.

    Attributes:
        target: Name of a switch of the configuration, or host or host and port.
        output: Where the recording goes; standard output where None.
        raw: Whether names, addresses and serial numbers stay.
        snmp: How to ask a switch that is not in the configuration; None where nothing is said of that.
    """

    target: str
    output: Path | None
    raw: bool
    snmp: Snmp | None


async def take_snapshot(options: SnapshotOptions, switches: SwitchOptions | None) -> None:
    """Record a switch.

    Args:
        options: The command line.
        switches: `switches` of the configuration, where there is one.

    Raises:
        ConfigError: Nobody knows how to ask it, or a secret cannot be read.
        OSError: It does not answer, or the file cannot be written.
    """
    address, snmp = _asked(options, switches)
    if options.output is not None and options.output.exists():
        raise ConfigError(f"{options.output}: exists already; name another file, or remove it")
    try:
        credentials = await asyncio.to_thread(read_credentials, snmp)
        recording = await snapshot(address, credentials, progress=_progress())
    except (SecretError, ValueError) as error:
        raise ConfigError(str(error)) from None
    except SnmpError as error:
        raise OSError(str(error)) from None
    rows = recording.rows if options.raw else anonymise(recording.rows)
    for problem in recording.problems:
        print(f"fabric-exporter: {problem}", file=sys.stderr)  # noqa: T201  # what a command says to its user
    text = snmp_recording.dump(rows)
    if options.output is None:
        sys.stdout.write(text)
        return
    await asyncio.to_thread(options.output.write_text, text, "ascii")
    kept = (
        "names, addresses and serial numbers are in it: look before you give it away"
        if options.raw
        else "names, addresses and serial numbers are replaced; look at it all the same before you give it away"
    )
    print(f"{options.output}: {len(rows)} rows; {kept}", file=sys.stderr)  # noqa: T201  # likewise


async def serve_replay(path: Path, listen: str, community: str) -> None:
    """Serve a recording until interrupted.

    Raises:
        ValueError: The address is none, or the recording has no row.
        OSError: The recording cannot be read, or nobody can listen there.
    """
    host, port = parse_address(listen)
    await replay(path, host, port, community=community, tell=lambda line: print(line, flush=True))  # noqa: T201


def _asked(options: SnapshotOptions, switches: SwitchOptions | None) -> tuple[str, Snmp]:
    """Say where and how a switch is asked."""
    if switches is not None:
        for target, _ in resolve_targets(switches):
            if target.name == options.target and target.snmp is not None:
                return target.snmp.address or target.address, options.snmp or target.snmp
    if options.snmp is None:
        raise ConfigError(
            f"{options.target!r}: how is it asked? Name a switch of --config.file that has snmp, or give"
            " --snmp.community-file, or --snmp.version=3 and --snmp.user"
        )
    parse_address(options.target)
    return options.target, options.snmp


def _progress() -> Callable[[str], None]:
    """Give what tells how far a snapshot is: in grey on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda line: print(f"{_DIM}{line}{_PLAIN}", file=sys.stderr)  # noqa: T201  # what a command says to its user
