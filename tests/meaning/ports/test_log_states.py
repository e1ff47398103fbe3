"""States from logs of jobs, read from logs by the source."""

import pytest

from exporter.core.table import Rows, Table
from exporter.meaning.ports import log_states
from exporter.meaning.ports.log_states import (
    ERROR_SECONDS,
    FORGET_SECONDS,
    RULES,
    LogStateMemory,
)
from exporter.meaning.ports.states import PortLocation
from exporter.meaning.training.cause_rules import LOG_RULES
from exporter.nccl.system_errors import ERRORS
from exporter.sources.nccl.metrics import COLLECTIVES
from exporter.sources.nccl_facts import source as nccl_facts
from exporter.sources.nccl_facts.log_events import (
    CALLS,
    PORT_EVENTS,
    STATUSES,
)
from exporter.sources.nccl_facts.problems import PROBLEMS as KNOWN_PROBLEMS
from tests.helpers.paths import FIXTURES
from tests.sources.nccl_facts.test_source import ROCE, TROUBLE, bench  # noqa: F401  # a fixture

HOST = "gpu-001.example.com"
"""Name of the host in the exporter; its logs contain gpu-001."""

A1 = PortLocation(HOST, "mlx5_1:1")
WHOLE = PortLocation(HOST, "")


def run_step(memory, made, now):
    return {(one.kind, one.port): one for one in log_states.step(memory, made.reading.tables, HOST, now)}


async def write(made, job, data):
    folder = made.folder / job
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as file:
        file.write(data)
    await made.read()


def test_rules_match_the_metrics_of_the_source():
    endings = {ending for schema in nccl_facts.DEFINITION.schemas for ending in schema.metrics}
    known = {
        "problem": {one.name for one in KNOWN_PROBLEMS},
        "event": {name for _, name in PORT_EVENTS},
        "status": set(STATUSES.values()),
        "call": CALLS,
        "error": {one.name for one in ERRORS},
    }
    assert RULES
    for rule in RULES:
        assert rule.ending in endings
        assert all(set(values) <= known[name] for name, values in rule.labels.items())


def test_each_kind_of_log_state_has_a_rule():
    by_texts_and_places = {"proxied", "adapters_unused", "adapter_shared"}
    assert {rule.kind for rule in RULES} | by_texts_and_places == {rule.kind for rule in LOG_RULES}


async def test_an_error_is_a_state_of_its_port_and_job_for_a_limited_time(bench):  # noqa: F811
    memory = LogStateMemory()
    await write(bench, "llama", ROCE)
    assert run_step(memory, bench, 100.0).keys() & {("port_error", A1), ("peer_unreachable", WHOLE)} == set()
    await write(bench, "llama", TROUBLE)
    found = run_step(memory, bench, 110.0)
    assert {"port_error", "path_not_made", "failed_over"} <= {kind for kind, _ in found}
    error = found["port_error", A1]
    assert (error.since, error.number, error.job) == (110.0, 1, "llama")
    for now in range(120, 110 + int(ERROR_SECONDS), 60):
        await bench.read()
        assert ("port_error", A1) in run_step(memory, bench, float(now))
    await bench.read()
    late = run_step(memory, bench, 111.0 + ERROR_SECONDS)
    assert ("port_error", A1) not in late
    assert any(kind == "failed_over" for kind, _ in late), "as long as it is so"


async def test_a_recovered_port_has_no_error_and_may_fail_again(bench):  # noqa: F811
    memory, lines = LogStateMemory(), TROUBLE.splitlines(keepends=True)
    await write(bench, "llama", ROCE)
    run_step(memory, bench, 5.0)
    await write(bench, "llama", lines[0])
    assert run_step(memory, bench, 10.0)["port_error", A1].number == 1
    await write(bench, "llama", lines[2])
    assert ("port_error", A1) not in run_step(memory, bench, 20.0)
    await write(bench, "llama", lines[1])
    again = run_step(memory, bench, 30.0)["port_error", A1]
    assert (again.since, again.number) == (30.0, 2)


async def test_states_survive_a_missing_reading_and_end_after_minutes_without(bench):  # noqa: F811
    memory, lines = LogStateMemory(), TROUBLE.splitlines(keepends=True)
    await write(bench, "llama", ROCE)
    run_step(memory, bench, 5.0)
    await write(bench, "llama", lines[0])
    before = run_step(memory, bench, 10.0)
    await write(bench, "llama", lines[2])
    assert {(one.kind, one.port): one for one in log_states.step(memory, [], HOST, 15.0)} == before
    assert ("port_error", A1) not in run_step(memory, bench, 20.0)
    log_states.step(memory, [], HOST, 30.0)
    assert ("port_error", A1) not in run_step(memory, bench, 40.0), "a recovered error does not return"
    assert log_states.step(memory, [], HOST, 41.0 + FORGET_SECONDS) == []
    assert ("port_error", A1) not in run_step(memory, bench, 50.0 + FORGET_SECONDS), (
        "what stood there before is no news"
    )


async def test_states_end_with_the_logs_of_their_job(bench):  # noqa: F811
    memory = LogStateMemory()
    for job in ("other", "llama"):
        await write(bench, job, ROCE)
    run_step(memory, bench, 5.0)
    await write(bench, "llama", TROUBLE)
    assert "llama" in {one.job for one in run_step(memory, bench, 10.0).values()}
    (bench.folder / "llama" / "log").unlink()
    await bench.read()
    assert {one.job for one in run_step(memory, bench, 15.0).values()} <= {"other"}
    kept = [*memory.last_errors, *memory.begun, *memory.numbers]
    assert {job for _, job, _ in kept} <= {"other"}
    assert not any("llama" in row for _, row in memory.counters)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"gpu-001:1:2 [6] NCCL INFO NCCL_IB_TIMEOUT set by environment to 1.", "short_timeout"),
        (b"gpu-001:1:2 [0] NCCL INFO Using network Socket", "tcp_only"),
    ],
)
async def test_the_transport_of_a_job_is_a_state_of_this_host_and_job(bench, line, kind):  # noqa: F811
    await write(bench, "llama", line + b"\n" + line.replace(b"gpu-001", b"gpu-002") + b"\n")
    found = log_states.step(LogStateMemory(), bench.reading.tables, HOST, 10.0)
    assert [(one.kind, one.port, one.job) for one in found] == [(kind, WHOLE, "llama")], (
        "other hosts report their own states"
    )


async def test_tables_of_timings_are_not_readings_of_logs(bench):  # noqa: F811
    keys = [("llama", "0", "AllReduce")]
    timings = Table(COLLECTIVES, Rows(COLLECTIVES.labels, keys, {}), {}, 1.0)
    memory, lines = LogStateMemory(), TROUBLE.splitlines(keepends=True)
    assert log_states.step(memory, [timings], HOST, 1.0) == []
    await write(bench, "llama", ROCE + lines[0])
    assert ("port_error", A1) not in run_step(memory, bench, 5.0), "it stood there before"
    log_states.step(memory, [timings], HOST, 10.0)
    assert ("port_error", A1) not in run_step(memory, bench, 15.0)


@pytest.mark.parametrize(
    ("names", "states"),
    [
        (["llama-worker-0"], 1),  # that of a pod
        (["10.0.0.7"], 1),
        (["gpu-002", "gpu-003"], 0),  # of a whole job, and none of it here
        (["gpu-001", "gpu-002"], 1),
    ],
)
async def test_a_log_with_a_single_host_name_belongs_to_this_host(bench, names, states):  # noqa: F811
    lines = [f"{name}:1:2 [0] NCCL INFO Using network Socket\n".encode() for name in names]
    await write(bench, "llama", b"".join(lines))
    assert len(log_states.step(LogStateMemory(), bench.reading.tables, HOST, 10.0)) == states


def test_addresses_are_not_shortened():
    assert [log_states._short(one) for one in ("10.0.0.7", "gpu-1.example.com", "gpu-1", "")] == [
        "10.0.0.7",
        "gpu-1",
        "gpu-1",
        "",
    ]


def test_fixtures_are_those_of_the_source():
    assert (FIXTURES / "nccl-facts" / "trouble.log").read_bytes() == TROUBLE
