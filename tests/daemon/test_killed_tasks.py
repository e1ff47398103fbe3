"""Any task of a running daemon that ends is back, counted, and delays no other: the whole cluster, with a broker."""

import asyncio
import inspect
from contextlib import asynccontextmanager
from pathlib import Path

from exporter.commands import demo
from exporter.core import supervision
from exporter.daemon.daemon import Daemon
from exporter.simulator.cluster import Cluster
from tests.helpers.paths import ROOT

LONG = 60.0

BESIDE = {"bursts ticks", "collector batches", "mqtt publisher", "mqtt subscriber", "port states"}
"""The tasks beside those of the sources."""


async def until(condition):
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110  # the condition is on the state of the daemon
            await asyncio.sleep(0.01)


def of_daemon(task):
    """Return whether a task runs code of the exporter, and not of a simulated device."""
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine):
        return False
    path = Path(coroutine.cr_code.co_filename)
    return path.is_relative_to(ROOT / "exporter") and "simulator" not in path.parts


async def lasting_tasks(before):
    """Return the tasks that run for long, without those from before."""
    found = asyncio.all_tasks()
    await asyncio.sleep(1.0)
    return {task for task in found & asyncio.all_tasks() - before if of_daemon(task)}


@asynccontextmanager
async def whole_daemon(folder, port):
    async with Cluster(folder, interval="200ms", switch_interval="400ms") as cluster:
        text = cluster.config_file.read_text()
        cluster.config_file.write_text(f"{text}\nmqtt: {{broker: '127.0.0.1:{port}'}}\ncollector: {{slots: 00-ff}}\n")
        daemon = Daemon(demo.settings(cluster, listen_addresses=["127.0.0.1:0"]))
        await daemon.start()
        try:
            yield daemon
        finally:
            await daemon.stop()


def reads(daemon, *, fast_only=True):
    """Return the number of reads of the sources that are read often, by name and target."""
    pollers = [one.poller for one in daemon._sources.all()]
    return {
        (one.source.name, one.source.target): one.status.reads
        for one in pollers
        if one.source.interval < 1 or not fast_only
    }


def is_connected(daemon):
    collector = daemon._sources._running["collector", ""].poller.source
    publisher = daemon._relay._publisher
    return publisher.status.connected and collector._subscriber is not None and collector._subscriber.subscribed


async def test_any_task_that_is_killed_is_back_and_the_others_keep_their_pace(tmp_path, broker, monkeypatch):
    monkeypatch.setattr(supervision, "FIRST_DELAY", 0.01)
    before = asyncio.all_tasks()
    async with whole_daemon(tmp_path, broker().port) as daemon:
        await until(lambda: all(reads(daemon, fast_only=False).values()))
        await until(lambda: is_connected(daemon))
        found = await lasting_tasks(before)
        names = {task.get_name() for task in found}
        sources = {one.task.name for one in daemon._sources.all()}
        assert sources | BESIDE <= names
        assert len(sources) >= 10
        killed = 0
        for name in sorted(names):
            restarts, counted, overruns = dict(daemon._supervisor.restarts), reads(daemon), _overruns(daemon)
            for task in [one for one in asyncio.all_tasks() if one.get_name() == name]:
                task.cancel()
                killed += 1
            await until(lambda restarts=restarts: sum(daemon._supervisor.restarts.values()) > sum(restarts.values()))
            await until(lambda: is_connected(daemon))
            await until(lambda counted=counted: all(count >= counted[key] + 3 for key, count in reads(daemon).items()))
            changed = {kind for kind, count in daemon._supervisor.restarts.items() if count != restarts.get(kind)}
            assert len(changed) == 1, f"{name}: {changed} started again"
            assert any(task.get_name() == name for task in asyncio.all_tasks()) or name.startswith("Task-"), name
            late = {key: count - overruns[key] for key, count in _overruns(daemon).items() if count != overruns[key]}
            assert sum(late.values()) <= 3 * len(late), f"{name}: {late}"
        assert killed >= len(sources | BESIDE)


def _overruns(daemon):
    return {one.task.name: one.poller.status.overruns for one in daemon._sources.all()}


async def test_a_poller_that_ends_by_an_error_is_back_with_its_state(tmp_path, broker, monkeypatch, caplog):
    monkeypatch.setattr(supervision, "FIRST_DELAY", 0.01)
    async with whole_daemon(tmp_path, broker().port) as daemon:
        await until(lambda: all(reads(daemon).values()))
        running = daemon._sources._running["rdma", ""]
        poller = running.poller
        with monkeypatch.context() as patch:

            def fail(*_):
                raise ZeroDivisionError("a bug")

            patch.setattr(poller, "_wait", fail)
            await until(lambda: daemon._supervisor.restarts["rdma"] > 0)
        count = poller.status.reads
        await until(lambda: poller.status.reads > count + 2)
        assert daemon._sources._running["rdma", ""].poller is poller
        assert poller.status.up is True
    assert "rdma: ended by an error in this program" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text
