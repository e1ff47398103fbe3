"""Lookups of names that no name server answers: they keep neither polls nor other lookups waiting."""

import asyncio
import contextlib
import socket
import threading

import pytest

from exporter.daemon import lookups
from exporter.daemon.lookups import LookupLoop, Lookups, UnknownNameError
from exporter.daemon.probe import Prober
from exporter.daemon.probe_options import ProbeOptions
from exporter.sources.switch.options import Snmp
from exporter.sources.switch.registry import SwitchRegistry
from exporter.sources.switch.targets import CommonOptions, SwitchOptions

ADDRESS = [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", 0))]


class NameServer:
    """A resolver that answers for names with `slow` in them only when the test ends."""

    def __init__(self):
        self.released = threading.Event()
        self.asked = []
        self.waiting = 0
        self.most_waiting = 0
        self._lock = threading.Lock()
        self._usual = socket.getaddrinfo

    def __call__(self, host, *given, **more):
        if host.startswith(("127.", "192.")):
            return self._usual(host, *given, **more)
        with self._lock:
            self.asked.append(host)
            self.waiting += "slow" in host
            self.most_waiting = max(self.waiting, self.most_waiting)
        if "slow" in host:
            self.released.wait(60)
            with self._lock:
                self.waiting -= 1
        if "unknown" in host:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ADDRESS


@pytest.fixture
def name_server(monkeypatch):
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.released.set()


def run(test):
    """Run a coroutine in the daemon's event loop."""
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        loop = runner.get_loop()
        try:
            runner.run(test())
        finally:
            loop.threads.shutdown(wait=False, cancel_futures=True)


def test_a_flood_of_probes_of_slow_names_leaves_threads_to_the_polls(name_server):
    """Seen on the running daemon: 138 threads, and a poll that was lost."""

    async def flood():
        switches = SwitchOptions(defaults=CommonOptions(snmp=Snmp(community="public")))
        prober = Prober(ProbeOptions(allow=("*",)), switches, SwitchRegistry(), list)
        loop = asyncio.get_running_loop()
        for turn in range(3):  # threads of the turns before are still waiting
            probes = [prober.probe(f"slow-{turn}-{number}", timeout=1.0) for number in range(90)]
            flooding = asyncio.gather(*probes)
            await asyncio.sleep(0)
            polled = [loop.getaddrinfo(f"leaf-{number}", 161) for number in range(100)]
            assert await asyncio.gather(*polled) == [ADDRESS] * 100
            assert await asyncio.to_thread(int, "1") == 1
            results = await flooding
            assert {result.report.splitlines()[1] for result in results} == {"timeout: no response within 0.5 s"}
        assert name_server.most_waiting == lookups.MAX_PROBED
        name_server.released.set()
        await prober.close()

    run(flood)


def test_slow_names_of_polled_switches_keep_no_other_blocking_call_waiting(name_server, monkeypatch):
    monkeypatch.setattr(lookups, "MAX_THREADS", 4)

    async def poll():
        loop = asyncio.get_running_loop()
        for _ in range(20):  # polls of the same switches, each of which is given up
            for name in ("slow-1", "slow-2", "slow-3"):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await loop.getaddrinfo(name, 161)
        assert name_server.most_waiting == 3, "one thread for each name"
        assert await loop.getaddrinfo("leaf-1", 161) == ADDRESS
        for name in ("slow-4", "slow-5", "slow-6"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await loop.getaddrinfo(name, 161)
        assert name_server.most_waiting == 4
        assert await asyncio.to_thread(int, "1") == 1
        (found,) = await loop.getaddrinfo("127.0.0.1", 161, type=socket.SOCK_DGRAM)
        assert found[4] == ("127.0.0.1", 161), "an address needs no thread"
        name_server.released.set()

    run(poll)


def test_waiting_lookups_of_probes_that_ended_are_never_made(name_server):
    async def probe():
        found = Lookups()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.gather(*(found.lookup(f"slow-{number}") for number in range(50)))
        assert len(name_server.asked) == lookups.MAX_PROBED
        name_server.released.set()
        assert [str(one) for one in await found.lookup("leaf-1")] == ["192.0.2.1"]
        assert len(name_server.asked) == lookups.MAX_PROBED + 1
        assert [str(one) for one in await found.lookup("127.1")] == ["127.0.0.1"]
        with pytest.raises(UnknownNameError, match="the name 'unknown' cannot be resolved"):
            await found.lookup("unknown")

    run(probe)


def test_probes_of_one_name_share_a_lookup(name_server):
    async def probe():
        found = Lookups()
        waiting = asyncio.gather(*(found.lookup("slow") for _ in range(50)))
        await asyncio.sleep(0.1)
        name_server.released.set()
        assert len(await waiting) == 50
        assert name_server.asked == ["slow"]

    run(probe)
