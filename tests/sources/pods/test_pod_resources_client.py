"""kubelet's API over a real Unix socket: replies, slow and malformed ones, refusals, and a restart."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from exporter.core.source import Failure
from exporter.sources.pods import pod_resources_client
from exporter.sources.pods.pod_resources import parse_list
from exporter.sources.pods.pod_resources_client import PodResourcesClient
from tests.helpers.kubelet import METHOD, pod, reply, serving, serving_bytes, serving_in_thread
from tests.helpers.paths import ROOT
from tests.helpers.unprivileged import status_without_rights

pytest.importorskip("grpc", reason="needs grpcio")

RECORDED = reply(pod("training", "worker-0", trainer={"openshift.io/rail0": ["0000:c0:01.3"]}))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kubelet.sock"


@pytest.fixture
async def client(path):
    client = PodResourcesClient(path)
    yield client
    await client.close()


def answering(data):
    async def answer():
        return data

    return answer


async def test_the_reply_is_that_of_the_server(path, client):
    async with serving(path, answering(RECORDED)) as called:
        assert await client.list_pods() == RECORDED
        assert await client.list_pods() == RECORDED
    assert called == [METHOD, METHOD]
    assert [one.device for one in parse_list(RECORDED)] == ["0000:c0:01.3"]


async def test_the_first_bytes_on_the_wire_are_those_of_http_2(path, client, monkeypatch):
    """RFC 9113, 3.4: what any gRPC server expects, kubelet's too."""
    monkeypatch.setattr(pod_resources_client, "CALL_SECONDS", 0.3)
    first = asyncio.get_running_loop().create_future()

    async def note(reader, writer):
        first.set_result(await reader.readexactly(24))
        writer.close()

    async with await asyncio.start_unix_server(note, path):
        assert isinstance(await client.list_pods(), Failure)
    assert await first == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def test_without_a_socket_there_is_nothing_and_no_failure(client):
    assert await client.list_pods() is None


async def test_a_slow_reply_is_given_up_at_its_deadline_and_the_next_is_read(path, client, monkeypatch):
    monkeypatch.setattr(pod_resources_client, "CALL_SECONDS", 0.3)
    delays = [30, 0]

    async def answer():
        await asyncio.sleep(delays.pop(0))
        return RECORDED

    async with serving(path, answer):
        began = time.monotonic()
        failed = await client.list_pods()
        assert time.monotonic() - began < 5
        assert (failed.device, failed.reason) == ("kubelet", "timeout")
        assert str(path) in failed.detail
        assert await client.list_pods() == RECORDED


async def test_a_reply_of_16_mib_is_read_and_a_larger_one_is_a_failure(path, client):
    sizes = [16 << 20, (16 << 20) + 1]

    async def answer():
        return bytes(sizes.pop(0))

    async with serving(path, answer):
        assert len(await client.list_pods()) == 16 << 20
        failed = await client.list_pods()
    assert failed.reason == "too_large_or_too_often"
    assert str(16 << 20) in failed.detail


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 4096, b"\xff" * (1 << 20)], ids=range(4)
)
async def test_what_is_no_http_2_is_a_failure(path, client, data):
    async with serving_bytes(path, data):
        failed = await client.list_pods()
    assert (failed.device, failed.reason) == ("kubelet", "unavailable")


async def test_a_server_of_something_else_is_a_failure(path, client, monkeypatch):
    async with serving(path, answering(RECORDED)):
        monkeypatch.setattr(pod_resources_client, "METHOD", "/v2.PodResourcesLister/List")
        failed = await client.list_pods()
    assert failed.reason == "unsupported"


async def test_an_error_of_the_server_is_a_failure(path, client):
    async def answer():
        raise RuntimeError("not ready")

    async with serving(path, answer):
        failed = await client.list_pods()
    assert failed.reason == "failed"


async def test_after_a_restart_the_same_channel_is_connected_again(path, client):
    async with serving(path, answering(b"")):
        assert await client.list_pods() == b""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as killed:  # it leaves a socket file without a server
        killed.bind(str(path))
    failed = await client.list_pods()
    path.unlink()
    assert failed.reason == "unavailable"
    async with serving(path, answering(RECORDED)):
        for _ in range(100):
            found = await client.list_pods()
            if found == RECORDED:
                break
            await asyncio.sleep(0.1)
    assert found == RECORDED


CALL = """
import asyncio, pathlib, sys
from exporter.sources.pods.pod_resources_client import PodResourcesClient
async def call():
    client = PodResourcesClient(pathlib.Path(sys.argv[1]))
    print((await client.list_pods()).reason)
    await client.close()
asyncio.run(call())
"""


def test_the_library_writes_nothing_when_kubelet_ends_during_a_call(path):
    """Failures are logged by the daemon, once. In a process of its own, as this one has imported the library before."""
    environment = {**os.environ, "PYTHONPATH": ":".join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment.pop("GRPC_VERBOSITY", None)
    command, pipe = [sys.executable, "-c", CALL, path], subprocess.PIPE
    outputs = []
    for _ in range(2):
        with serving_in_thread(path, b"", seconds=30) as called:
            child = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
            deadline = time.monotonic() + 20
            while not called and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)
        outputs.append(child.communicate(timeout=20))
    assert outputs == [("unavailable\n", "")] * 2


async def test_a_call_is_cancelled_with_its_task(path, client):
    asked = asyncio.Event()

    async def answer():
        asked.set()
        await asyncio.sleep(30)
        return b""

    async with serving(path, answer):
        task = asyncio.create_task(client.list_pods())
        await asked.wait()
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()
        assert time.monotonic() - began < 2


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_a_socket_of_root_is_a_failure_with_its_remedy_for_others(tmp_path):
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o660)
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)

        def call():
            failed = asyncio.run(PodResourcesClient(path).list_pods())
            return 0 if failed.reason == "eacces" and "needs root" in failed.detail else 1

        assert status_without_rights(call) == 0


async def test_the_library_is_imported_outside_the_event_loop(path, client, monkeypatch):
    class Recorder:
        threads = ()

        def find_spec(self, name, *_):
            self.threads += (threading.current_thread(),) if name == "grpc.aio" else ()

    recorder = Recorder()
    async with serving(path, answering(RECORDED)):
        monkeypatch.delitem(sys.modules, "grpc.aio")
        monkeypatch.setattr(sys, "meta_path", [recorder, *sys.meta_path])
        assert await client.list_pods() == RECORDED
    assert recorder.threads
    assert threading.current_thread() not in recorder.threads


async def test_without_the_library_the_failure_names_the_extra(path, client, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc.aio", None)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        failed = await client.list_pods()
    assert failed.reason == "no_library"
    assert "fabric-exporter[pods]" in failed.detail
