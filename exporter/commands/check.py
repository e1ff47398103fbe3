"""The command `check`: whether this host is set up for RDMA, as one table with evidence and remedies."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from exporter.commands.flags import add_host_flags, add_path_flag
from exporter.commands.judging import status_of
from exporter.commands.scrapes import url_type
from exporter.commands.terminal import CYAN, GREEN, PLAIN, RED, YELLOW, listed, print_output, show_progress
from exporter.config.errors import ConfigError, UserError

if TYPE_CHECKING:
    from exporter.preflight.results import Check, Finding
    from exporter.sources.hostcheck.host_facts import Configured

HELP = "check whether this host is set up for RDMA: links, PCIe, GPUDirect, RoCE, InfiniBand, limits, NCCL"

UNUSED = "not_applicable"

ORDER = ("fail", "warn", "unknown", "ok", UNUSED)
"""Results in the order in which they are shown."""

COLOURS: Mapping[str, str] = MappingProxyType({"fail": RED, "warn": YELLOW, "unknown": CYAN, "ok": GREEN})

WIDTH, MIN_WIDTH = 120, 60
"""Characters of a line where the output is not a terminal, and on a narrow one."""

MAX_NAMES = 16
"""Objects with the same result that are named; JSON has all."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this command."""
    add_host_flags(parser)
    add_path_flag(
        parser,
        "nccl-conf",
        "NCCL's configuration file of the host (default /etc/nccl.conf)",
        Path("/etc/nccl.conf"),
        metavar="FILE",
    )
    add_path_flag(
        parser,
        "lldp",
        "LLDP frames that systemd-networkd received (default /run/systemd/netif/lldp)",
        Path("/run/systemd/netif/lldp"),
    )
    add_path_flag(
        parser, "dev", "where the nodes of RDMA devices are looked for (default /dev, unless --path.sysfs is given)"
    )
    parser.add_argument(
        "--only",
        action="append",
        type=_check_name,
        default=[],
        metavar="CHECK",
        help="a check to run, repeatable (default all)",
    )
    parser.add_argument(
        "--remote",
        action="extend",
        nargs="+",
        type=url_type,
        default=[],
        metavar="URL",
        help="compare hosts by the metrics of their exporters, such as http://gpu-001:10315/metrics",
    )
    parser.add_argument(
        "--expect",
        type=Path,
        metavar="FILE",
        help="configuration file; its section expect gives what this host should have",
    )
    parser.add_argument("--list", action="store_true", help="list the checks, and read nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--verbose", action="store_true", help="show each object, also where nothing needs attention")
    parser.add_argument("--strict", action="store_true", help="exit with 1 for a warning too")


def run(arguments: argparse.Namespace) -> int:
    """Print the results.

    Returns:
        1 if a check failed, with `--strict` also for a warning; 0 if none did, also where results are unknown; 2 for a
        fault of this program, which is not one of the host.
    """
    return status_of(partial(_run, arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UserError: There is no sysfs or procfs.
    """
    from exporter.preflight.checks import CHECKS
    from exporter.preflight.results import evaluate

    if arguments.remote:
        from exporter.commands.check_remote import run as run_remote

        return run_remote(arguments.remote, as_json=arguments.json, is_strict=arguments.strict)
    checks = [check for check in CHECKS if not arguments.only or check.name in arguments.only]
    if arguments.list:
        print_output(f"{check.name.ljust(26)}  {check.title}" for check in checks)
        return 0
    for flag, root in (("sysfs", arguments.sysfs), ("procfs", arguments.procfs)):
        if not root.is_dir():
            raise UserError(f"--path.{flag}: {root}: no such directory; mount it there")
    configured = _configured(arguments.expect)
    facts, problems = _read(arguments, configured)
    results = evaluate(checks, facts)
    for problem in problems:
        print(f"fabric-exporter: {problem}", file=sys.stderr)  # noqa: T201  # what could not be read
    if arguments.json:
        print_output([json.dumps(_as_json(facts.host, checks, results), indent=1)])
    else:
        width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
        lines = _as_text(facts.host, results, width=max(width, MIN_WIDTH), verbose=arguments.verbose)
        print_output(_coloured(word, line) for word, line in lines)
    found = {one.result.value for findings in results.values() for one in findings}
    return int("fail" in found or (arguments.strict and "warn" in found))


def _check_name(text: str) -> str:
    from exporter.preflight.checks import CHECKS

    if text not in {check.name for check in CHECKS}:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a check; `fabric-exporter check --list` lists them")
    return text


def _configured(file: Path | None) -> "Configured":
    """Load what a configuration file expects of this host; nothing without a file.

    Raises:
        ConfigError: The file cannot be read, or is invalid, or expects nothing.
    """
    from exporter.sources.hostcheck.host_facts import NOTHING, Configured

    if file is None:
        return NOTHING
    from exporter.daemon.loading import host_name, load_config

    config = load_config(file)
    host = host_name(config)
    expected = config.expect.for_host(host)
    if expected == NOTHING.expected:
        raise ConfigError(f"{file}: expects nothing of {host}; give its section `expect`, such as expect: {{gpus: 8}}")
    return Configured(expected, config.sources["rdma"])


def _read(arguments: argparse.Namespace, configured: "Configured") -> tuple[Any, list[str]]:
    """Read the facts of this host, and what could not be read; shows progress on a terminal."""
    from exporter.core.source import Failure, Host
    from exporter.daemon.loading import own_name
    from exporter.sources.common.host_ports import nic_reader
    from exporter.sources.hostcheck.host_facts import host_facts, readings
    from exporter.sources.rdma.ports import rdma_reader

    is_this_host = arguments.sysfs == Path("/sys")
    dev = arguments.dev or (Path("/dev") if is_this_host else None)
    host = Host(own_name(), arguments.sysfs, arguments.procfs, arguments.nic_replay, dev=dev)
    failures: list[Failure] = []
    answers: dict[str, object] = {}
    calls = readings(host, nic_reader(host), rdma_reader(host), failures, arguments.nccl_conf, arguments.lldp)
    for kind, call in calls.items():
        show_progress(f"reading {kind.replace('_', ' ')} …")
        try:
            answers[kind] = call()
        except OSError as error:
            answers[kind] = error
            failures.append(Failure(kind, "unreadable", f"{kind.replace('_', ' ')}: {error}"))
    show_progress("")
    return host_facts(host, answers, configured), [one.detail for one in failures]


def _as_json(host: str, checks: "Sequence[Check]", results: "Mapping[str, Sequence[Finding]]") -> dict[str, Any]:
    titles = {check.name: check.title for check in checks}
    rows = [
        {
            "check": check,
            "title": titles[check],
            "object": one.object,
            "result": one.result.value,
            "evidence": one.evidence,
            **({"remedy": one.remedy} if one.remedy else {}),
        }
        for check, findings in results.items()
        for one in findings
    ]
    return {"host": host, "counts": _counts(results), "results": rows}


def _counts(results: "Mapping[str, Sequence[Finding]]") -> dict[str, int]:
    words = [one.result.value for findings in results.values() for one in findings]
    return {word: words.count(word) for word in ORDER}


def _as_text(
    host: str, results: "Mapping[str, Sequence[Finding]]", *, width: int, verbose: bool
) -> Iterator[tuple[str, str]]:
    """Yield the word that colours a line, and the line."""
    summary = ", ".join(f"{number} {word.replace('_', ' ')}" for word, number in _counts(results).items() if number)
    yield "", f"{host}: {summary}"
    yield "", ""
    objects: dict[tuple[str, str, str, str], list[str]] = {}
    for check, findings in results.items():
        for one in findings:
            if verbose or one.remedy:
                objects.setdefault((one.result.value, check, one.evidence, one.remedy), []).append(one.object)
    indent = " " * len("UNKNOWN  ")
    for (word, check, evidence, remedy), names in sorted(objects.items(), key=lambda row: ORDER.index(row[0][0])):
        first, *others = _wrapped(f"{check}: {listed(names, MAX_NAMES)}", "", width - len(indent))
        yield word, f"{_label(word)}  {first}"
        yield from (("", f"{indent}{line}") for line in others)
        yield from (("", line) for line in _wrapped(evidence, indent, width))
        if remedy:
            yield from (("", line) for line in _wrapped(f"-> {remedy}.", indent, width))
    if not verbose:
        if objects:
            yield "", ""
        yield from _brief(results, width)
        unused = ", ".join(name for name, found in results.items() if {one.result.value for one in found} == {UNUSED})
        if unused:
            first, *others = _wrapped(f"{_label(UNUSED)}  {unused}", "", width - len(indent))
            yield UNUSED, first
            yield from ((UNUSED, f"{indent}{line}") for line in others)


def _brief(results: "Mapping[str, Sequence[Finding]]", width: int) -> Iterator[tuple[str, str]]:
    """Yield what checks found that needs no attention, with the number of objects; one line each on a wide terminal."""
    name = max(map(len, results), default=0)
    indent = " " * min(len("UNKNOWN  ") + name + 2, width // 3)
    for word in ("unknown", "ok"):
        for check, findings in results.items():
            alike = [one for one in findings if one.result.value == word]
            if alike:
                more = f" ({len(alike)} objects)" if len(alike) > 1 else ""
                where = "" if word == "ok" else f"{listed([one.object for one in alike], MAX_NAMES)}: "
                head = f"{_label(word)}  {check.ljust(name)}  "
                first, *others = textwrap.wrap(
                    f"{head}{where}{alike[0].evidence}{more}",
                    width,
                    subsequent_indent=indent,
                    break_on_hyphens=False,
                )
                yield word, first
                yield from (("", line) for line in others)


def _label(word: str) -> str:
    return ("n/a" if word == UNUSED else word.upper() if word in {"fail", "warn"} else word).ljust(7)


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _coloured(word: str, line: str) -> str:
    return f"{COLOURS[word]}{line[:7]}{PLAIN}{line[7:]}" if word in COLOURS else line
