"""The command line: it assembles the parser of the modules in `exporter.commands` and runs the chosen command."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from exporter import __version__
from exporter.commands import (
    check,
    check_config,
    demo,
    demo_cluster,
    estimate,
    hook,
    ib_flags,
    probe,
    replay,
    run,
    snapshot,
    validate,
)
from exporter.commands.judging import OWN_FAULT
from exporter.commands.terminal import drop_output, suppress_broken_pipe
from exporter.config.errors import UserError


class Command(Protocol):
    """What each module of `exporter.commands` provides."""

    HELP: str

    def add_flags(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the flags of the command."""

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Run the command; returns the exit status."""


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "run": run,
        "check-config": check_config,
        "demo": demo,
        "demo-cluster": demo_cluster,
        "probe": probe,
        "snapshot": snapshot,
        "replay": replay,
        "check": check,
        "estimate": estimate,
        "validate": validate,
        "hook": hook,
        "ib": ib_flags,
    }
)

JUDGING = frozenset({"check", "validate", "ib"})
"""Commands whose exit status 1 is a finding, or a difference: an output that cannot be written has another."""

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write to a file that cannot grow, or to a broken device; files that are opened have a name in theirs."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="fabric-exporter",
        description="Prometheus exporter for the network of GPU clusters: NICs, RDMA ports, switches, NCCL.",
        epilog="The default command is run. `fabric-exporter COMMAND --help` lists the flags of a command.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fabric-exporter {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_flags(commands.add_parser(name, help=command.HELP, description=command.HELP, allow_abbrev=False))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Exit status: 0 success, 1 failure, such as a wrong configuration or an address that cannot be listened on, 2
        wrong flags; that of `ib diff` is that of diff.
    """
    _open_missing_outputs()
    words = list(sys.argv[1:] if arguments is None else arguments)
    status = failed = OWN_FAULT if words and words[0] in JUDGING else 1
    try:
        status = _run(words)
        with suppress_broken_pipe():
            sys.stdout.flush()  # here, since an error of the flush at the end has no handler
    except BrokenPipeError:  # of a command that prints until it ends, such as a demo
        drop_output()
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        _print_error(f"the output cannot be written: {error.strerror}; free space, or choose another file for it")
        drop_output()
        return failed
    return status


def _run(words: list[str]) -> int:
    """Run a command, without what concerns its standard output."""
    if not words or (words[0].startswith("-") and words[0] not in {"-h", "--help", "--version"}):
        words.insert(0, "run")
    if words[0] != "run":  # a daemon receives it when it runs, see `exporter.__main__`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        chosen = parser().parse_args(words)
    finally:  # it also prints the help and the version, and exits then
        with suppress_broken_pipe():
            sys.stdout.flush()
    try:
        return COMMANDS[chosen.command].run(chosen)
    except KeyboardInterrupt:
        return 130
    except UserError as error:  # any other exception is a fault of this program, and keeps its traceback
        _print_error(str(error))
        return 1


def _open_missing_outputs() -> None:
    """Write what goes to a standard stream that is closed, as by `>&-`, to nowhere, as a command in C would."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # until the end


def _print_error(text: str) -> None:
    print(f"fabric-exporter: {text}", file=sys.stderr)  # noqa: T201  # errors go to the terminal
