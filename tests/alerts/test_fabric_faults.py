"""End to end: each fault of the simulated fabric reaches the right receiver, as the right alert about the right place.

Model, exporters, broker, collector, Prometheus with the rules, Alertmanager with the routes, receiver. The clusters of
`tests/helpers/fault_cases.py` run beside each other. All times of rules and routes are divided by FACTOR. A job has to
run for ten minutes before it can be slower than it was: the broker of one cluster has what an earlier collector kept.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from exporter.mqtt import subscriber
from tests.helpers.broker import Broker
from tests.helpers.demo_cluster import DemoCluster, Notice, demo_cluster
from tests.helpers.fault_cases import RUNS, Run
from tests.helpers.paths import ROOT
from tests.helpers.stack import own_folder
from tests.mqtt.test_broker import collected, until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1200)]

FACTOR = 20

INTERVAL = "2s"

OWN_THRESHOLDS = "source_stale:\n  age: 60m\nlink_flapping:\n  window: 20m\n"
"""Sources that are read once a minute are not stale after 5 minutes divided by FACTOR; a link that flaps each 20 s goes
down three times in a minute."""

PATIENCE = 900.0
"""Seconds after which what has not arrived does not; beside other work all has arrived after 550."""


def complete(notices: list[Notice], run: Run) -> bool:
    """Return whether each alert has begun and ended."""
    return all(
        case.arrived(notices, status, labels)
        for case in run.cases
        for labels in case.labels
        for status in ("firing", "resolved")
    )


def wait(demos: dict[str, DemoCluster]) -> None:
    """Wait until all alerts have begun and ended, for as long as that may take."""
    end = monotonic() + PATIENCE
    while monotonic() < end and not all(complete(demo.notices, RUNS[name]) for name, demo in demos.items()):
        ended = [demo.errors for demo in demos.values() if demo.process.poll() is not None]
        assert ended == []
        sleep(1)


@contextmanager
def broker_with_levels(path: str, folder: Path, run: Run) -> Iterator[list[str]]:
    """Start a broker on which a collector leaves best levels; gives the flags of the demo, none without levels."""
    if not run.levels:
        yield []
        return
    folder.mkdir()
    broker = Broker(path, folder, ("allow_anonymous true",))

    async def leave() -> None:
        async with collected(broker.options()) as (collector, _):
            collector.retained.levels.keep({"demo": run.levels})
            await until("the broker returns them", lambda: collector.retained.levels.of("demo") == run.levels)

    try:
        broker.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subscriber, "PUBLISH_INTERVAL", 0.05)
            asyncio.run(leave())
        yield ["--broker", f"127.0.0.1:{broker.port}"]
    finally:
        broker.stop()


@contextmanager
def running_demos(program, names) -> Iterator[dict[str, DemoCluster]]:
    """Run clusters, with divided times, until the end of the block."""
    mosquitto, *_ = map(program, ("mosquitto", "prometheus", "prometheus-alertmanager"))
    with own_folder() as folder, ExitStack() as running:
        (folder / "own.yml").write_text(OWN_THRESHOLDS)
        command = [sys.executable, ROOT / "alerts" / "build.py", "--thresholds", folder / "own.yml"]
        subprocess.run([*command, "--divide", str(FACTOR), "--output", folder / "rules"], check=True)
        flags = ["--rules", folder / "rules", "--interval", INTERVAL, "--no-infiniband"]
        demos = {}
        for name in names:
            run = RUNS[name]
            broker = running.enter_context(broker_with_levels(mosquitto, folder / f"broker-{name}", run))
            faults = [case.fault for case in run.cases]
            demos[name] = running.enter_context(demo_cluster(folder / name, [*flags, *run.flags, *broker], faults))
        yield demos
        for demo in demos.values():  # all at once; each is waited for at the end of its own block
            demo.process.terminate()


@pytest.fixture(scope="module")
def notices(program, request) -> dict[str, list[Notice]]:
    """Give what the receivers of all clusters got whose tests are selected."""
    names = {one.callspec.params["run"] for one in request.session.items if one.path == request.path}
    with running_demos(program, names) as demos:
        wait(demos)
        return {name: demo.notices for name, demo in demos.items()}


CASES = [
    pytest.param(name, case, id=f"{case.fault.partition('@')[0]}-{name}")
    for name, run in RUNS.items()
    for case in run.cases
]


@pytest.mark.parametrize(("run", "case"), CASES)
def test_a_fault_is_an_alert_about_its_place_that_ends_with_it(notices, run, case):
    found = [one for one in notices[run] if any(one.matches(case.alert, labels, case.text) for labels in case.labels)]
    assert found, notices[run]
    assert [one for one in found if not re.fullmatch(case.receiver, one.receiver)] == []
    for status in ("firing", "resolved"):
        missing = [labels for labels in case.labels if not case.arrived(found, status, labels)]
        assert missing == [], (status, found)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_else_is_sent(notices, run):
    cases = RUNS[run].cases
    others = [
        one
        for one in notices[run]
        if not any(case.is_about(one) or (one.alert in case.also and one.seconds >= case.start) for case in cases)
    ]
    assert others == []
