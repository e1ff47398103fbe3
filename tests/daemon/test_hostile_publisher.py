"""One publisher on the broker against the verdict on a real job: real mosquitto, real daemon as collector."""

import time

import pytest

from exporter.nccl.batch import MAX_OPERATIONS
from tests.helpers.collector_bench import (
    collector,
    invent_jobs,
    send_largest_batches,
    training_job,
    watched,
)
from tests.helpers.stack import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAX_JOBS = 512
"""Jobs of one collector, as documented."""

MAX_MIB = 128
"""Additional memory while one host sends 10 MB of valid batches; they took 680 MiB once."""


@pytest.fixture
def port(broker):
    return broker("allow_anonymous true", "max_queued_messages 10000").port


def test_invented_jobs_of_one_host_keep_no_real_job_out(port, tmp_path):
    """Twice as many names as there is room for, before the job starts."""
    with collector(tmp_path, port) as one:
        invent_jobs(port, 2 * MAX_JOBS, lambda _: "evil")
        until("refused", lambda: one.number('fabric_collector_batches_total{outcome="too_many_jobs"}'))
        with training_job(port):
            until("the verdict", one.has_verdict)
            invent_jobs(port, 2 * MAX_JOBS, lambda _: "evil")
            with watched(one) as seen:
                time.sleep(6)
    assert seen
    assert all(seen)


def test_invented_jobs_of_invented_hosts_keep_no_real_job_out(port, tmp_path):
    with collector(tmp_path, port) as one:
        invent_jobs(port, 2 * MAX_JOBS, lambda number: f"evil-{number}")
        until("full", lambda: one.number("fabric_collector_jobs") == MAX_JOBS)
        with training_job(port):
            until("the verdict", one.has_verdict)
            invent_jobs(port, 2 * MAX_JOBS, lambda number: f"evil-{number}")
            with watched(one) as seen:
                time.sleep(6)
    assert seen
    assert all(seen)


def test_large_batches_of_one_host_take_neither_a_verdict_nor_memory(port, tmp_path):
    with collector(tmp_path, port) as one, training_job(port):
        until("the verdict", one.has_verdict)
        before = one.memory()
        with watched(one) as seen:
            sent = send_largest_batches(port, 10_000_000)
            time.sleep(15)
            taken = one.number("fabric_collector_operations_total")
    assert seen.count(True) >= 0.9 * len(seen) > 0, "a busy machine may delay one"
    assert seen[-1]
    assert one.peak - before <= MAX_MIB
    assert taken < sent * MAX_OPERATIONS / 4, "those above the rate of the host wait"
