"""NCCL's variables of running jobs, and of nccl.conf: obsolete, out of range, or not right for this host."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from exporter.preflight.facts import HostFacts, JobProcess, RdmaPortFacts
from exporter.preflight.job_results import results_of_jobs, unread_processes
from exporter.preflight.results import Check, Finding, Result, fail, ok, unknown, warn
from exporter.preflight.roce import V2

RESTART = "; jobs use it when they start again"


class _Problem(NamedTuple):
    """What is wrong with a variable, how bad that is, and what to do."""

    result: Result
    evidence: str
    remedy: str


OBSOLETE: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_SHARP_ENABLE": "not a variable of NCCL: it has no effect (SHARP needs NCCL_COLLNET_ENABLE=1)",
        "NCCL_NCHUNKS_COARSE": "not a variable of NCCL: it has no effect",
        "NCCL_IB_GDR_LEVEL": "the old name of NCCL_NET_GDR_LEVEL",
        "NCCL_IB_CUDA_SUPPORT": "without effect since NCCL 2.4",
    }
)
"""Variables that have no effect, and what to use."""

RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"NCCL_IB_RETRY_CNT": (0, 7), "NCCL_IB_TIMEOUT": (1, 31), "NCCL_IB_QPS_PER_CONNECTION": (1, 128)}
)
"""Least and greatest value; of the timeout 0 waits for ever."""

LEVELS = frozenset({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"})

DEBUGGING: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "NCCL_P2P_DISABLE": lambda value: value == "1",
        "NCCL_SHM_DISABLE": lambda value: value == "1",
        "NCCL_NVLS_ENABLE": lambda value: value == "0",
        "NCCL_DEBUG": lambda value: value.upper() == "TRACE",
        "NCCL_ALGO": bool,
        "NCCL_PROTO": bool,
        "NCCL_NTHREADS": bool,
        "NCCL_BUFFSIZE": bool,
        "NCCL_MIN_NCHANNELS": bool,
        "NCCL_MAX_NCHANNELS": bool,
        "CUDA_LAUNCH_BLOCKING": lambda value: value == "1",
    }
)
"""Variables for finding faults, and whether a value costs throughput."""

EQUAL = frozenset(
    {"NCCL_NET", "NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS"}
    | {"NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"}
    | {"NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC", "NCCL_NET_GDR_LEVEL"}
    | {"NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_QPS_PER_CONNECTION"}
    | {"NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_MERGE_VFS"}
)
"""Variables by which ranks plan together: where they differ, a job may hang or fail."""

ALIKE = frozenset(
    {"NCCL_IB_TC", "NCCL_IB_FIFO_TC", "NCCL_IB_SL", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_AR_THRESHOLD"}
    | {"NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_GID_INDEX", "NCCL_DMABUF_ENABLE"}
)
"""Variables of each side's connections: where they differ, some connections behave differently."""

MAX_LINES = 16
"""Wrong lines of nccl.conf that are results; the others are likely of the same kind."""

_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]{0,127}=[^ \t].{0,4095}")


def _variables(facts: HostFacts) -> Iterator[Finding]:
    def judged(one: JobProcess) -> Iterator[Finding]:
        if one.nccl is None:
            yield unknown("", "the environment of the process cannot be read: run as root, or as its user")
            return
        problems = list(problems_of(one.nccl, facts))
        yield from (Finding("", problem.result, problem.evidence, problem.remedy) for problem in problems)
        if not problems:
            yield ok("", f"{len(one.nccl)} variables of NCCL")

    yield from results_of_jobs(facts, judged)


def problems_of(variables: Mapping[str, str], facts: HostFacts) -> Iterator[_Problem]:
    """Yield what is wrong with the variables of one process."""
    active = [port for port in facts.rdma_ports if port.is_active]
    for name, value in sorted(variables.items()):
        if name in OBSOLETE:
            yield _warning(name, value, OBSOLETE[name])
        elif name in RANGES and not _is_within(value, *RANGES[name]):
            low, high = RANGES[name]
            yield _warning(name, value, f"the range is {low} to {high}")
        elif name in DEBUGGING and DEBUGGING[name](value):
            yield _warning(name, value, "for finding faults: it costs throughput, or overrides NCCL's choice")
    yield from _transport(variables, active)
    yield from _adapters(variables, active)
    yield from _gid_index(variables, active)
    yield from _distance(variables)


def _warning(name: str, value: str, reason: str) -> _Problem:
    return _Problem(Result.WARN, f"{name}={value[:40]}: {reason}", f"Remove or correct {name}{RESTART}")


def _is_within(value: str, low: int, high: int) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < 10 and low <= int(value) <= high


def _transport(variables: Mapping[str, str], active: Sequence[RdmaPortFacts]) -> Iterator[_Problem]:
    without = variables.get("NCCL_IB_DISABLE") == "1" or variables.get("NCCL_NET", "").lower() == "socket"
    if without and active:
        name = "NCCL_IB_DISABLE=1" if variables.get("NCCL_IB_DISABLE") == "1" else "NCCL_NET=Socket"
        yield _Problem(
            Result.FAIL,
            f"{name} makes the job use TCP, and {len(active)} RDMA ports are active",
            f"Unset it{RESTART}",
        )


def selected_ports(selection: str, ports: Sequence[RdmaPortFacts]) -> list[RdmaPortFacts]:
    """Return the ports that a value of NCCL_IB_HCA selects: prefixes, `=` exact names, `^` all others, `:` a port."""
    excludes, exact = selection.startswith("^"), "=" in selection[:2]
    wanted = [item for item in selection.lstrip("^=").split(",") if item]

    def matches(port: RdmaPortFacts) -> bool:
        for item in wanted:
            name, _, number = item.partition(":")
            is_named = port.device == name if exact else port.device.startswith(name)
            if is_named and number in {"", str(port.port)}:
                return True
        return False

    return [port for port in ports if matches(port) is not excludes]


def _adapters(variables: Mapping[str, str], active: Sequence[RdmaPortFacts]) -> Iterator[_Problem]:
    selection = variables.get("NCCL_IB_HCA", "")
    if not selection or not active:
        return
    chosen = selected_ports(selection, active)
    if not chosen:
        yield _Problem(
            Result.FAIL,
            f"NCCL_IB_HCA={selection[:80]} matches no active port: NCCL falls back to TCP",
            f"Name the adapters as on this host, or unset it{RESTART}",
        )
    elif len(chosen) < len(active):
        yield _Problem(
            Result.WARN,
            f"NCCL_IB_HCA={selection[:80]} selects {len(chosen)} of {len(active)} active ports:"
            f" {', '.join(port.name for port in chosen[:MAX_LINES])}",
            "Select all ports of the compute network, without those for storage and management, unless each rank has"
            f" its own{RESTART}",
        )


def _gid_index(variables: Mapping[str, str], active: Sequence[RdmaPortFacts]) -> Iterator[_Problem]:
    value = variables.get("NCCL_IB_GID_INDEX", "")
    if not value.isdecimal() or len(value) > 4:
        return
    for port in active:
        if port.link_layer != "Ethernet" or port.gids is None:
            continue
        gid = next((one for one in port.gids if one.index == int(value)), None)
        if gid is None or gid.kind != V2:
            found = "empty" if gid is None else gid.kind
            yield _Problem(
                Result.FAIL,
                f"NCCL_IB_GID_INDEX={value} is {found} at {port.name}",
                f"Unset it: since NCCL 2.21 the right one is found{RESTART}",
            )


def _distance(variables: Mapping[str, str]) -> Iterator[_Problem]:
    value = variables.get("NCCL_NET_GDR_LEVEL", "").upper()
    if value in {"0", "LOC"}:
        yield _Problem(Result.FAIL, f"NCCL_NET_GDR_LEVEL={value} switches GPUDirect off", f"Unset it{RESTART}")
    elif value in {"5", "SYS"}:
        yield _warning("NCCL_NET_GDR_LEVEL", value, "GPUDirect across sockets is often slower than without")
    for name in ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"):
        level = variables.get(name, "").upper()
        if level and level not in LEVELS and not level.isdecimal():
            yield _warning(name, level, f"the levels are {', '.join(sorted(LEVELS))}")


def _alike(facts: HostFacts) -> Iterator[Finding]:
    """Compare the variables of processes of one job."""
    yield from unread_processes(facts)
    jobs: dict[str, list[Mapping[str, str]]] = {}
    for one in facts.processes.found:
        if one.nccl is not None and one.job:
            jobs.setdefault(one.job, []).append(one.nccl)
    for job, processes in sorted(jobs.items()):
        odd = [name for name in sorted(EQUAL | ALIKE) if len({one.get(name) for one in processes}) > 1]
        for name in odd:
            values = Counter(one.get(name, "unset") for one in processes)
            shown = ", ".join(f"{value[:40]} in {number}" for value, number in values.most_common(3))
            differs = fail if name in EQUAL else warn
            yield differs(
                f"job {job}", f"{name} differs among its processes: {shown}", f"Set it alike for all{RESTART}"
            )
        if not odd:
            yield ok(f"job {job}", f"variables are alike in {len(processes)} processes of this host")


def _nccl_conf(facts: HostFacts) -> Iterator[Finding]:
    """Judge the lines, of which the first with a name counts.

    NCCL removes no spaces: `NAME =1` and `export NAME=1` set variables of other names.
    """
    variables: dict[str, str] = {}
    wrong = 0
    for number, line in enumerate(facts.nccl_conf, 1):
        if _ASSIGNMENT.fullmatch(line):
            name, _, value = line.partition("=")
            variables.setdefault(name, value)
        elif line and not line.startswith("#"):
            wrong += 1
            if wrong <= MAX_LINES:
                evidence = f"{line[:60]!r} sets no variable of NCCL: it takes NAME=VALUE without spaces"
                yield warn(f"nccl.conf:{number}", evidence, f"Correct the line{RESTART}")
    problems = list(problems_of(variables, facts))
    yield from (Finding("nccl.conf", one.result, one.evidence, one.remedy) for one in problems)
    if facts.nccl_conf and not wrong and not problems:
        yield ok("nccl.conf", f"{len(variables)} variables")


CHECKS = (
    Check(
        "nccl_variables", "Variables of NCCL are valid and right for this host", ("processes", "rdma_ports"), _variables
    ),
    Check("nccl_variables_alike", "Processes of a job have the same variables of NCCL", ("processes",), _alike),
    Check(
        "nccl_conf",
        "Lines of nccl.conf set variables that are right for this host",
        ("nccl_conf", "rdma_ports"),
        _nccl_conf,
    ),
)
