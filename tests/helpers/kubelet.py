"""A kubelet of tests: its pod-resources API over a Unix socket, and its messages by the library of Protocol Buffers."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

METHOD = "/v1.PodResourcesLister/List"

# Name, number, repeated, and type (or message) of each field: kubernetes/kubelet pkg/apis/podresources/v1/api.proto.
MESSAGES: dict[str, tuple[tuple[str, int, bool, str], ...]] = {
    "ListPodResourcesResponse": (("pod_resources", 1, True, "PodResources"),),
    "PodResources": (
        ("name", 1, False, "string"),
        ("namespace", 2, False, "string"),
        ("containers", 3, True, "ContainerResources"),
        ("cpu_ids", 4, True, "int64"),
    ),
    "ContainerResources": (
        ("name", 1, False, "string"),
        ("devices", 2, True, "ContainerDevices"),
        ("cpu_ids", 3, True, "int64"),
        ("memory", 4, True, "ContainerMemory"),
        ("dynamic_resources", 5, True, "DynamicResource"),
    ),
    "ContainerMemory": (("memory_type", 1, False, "string"), ("size", 2, False, "uint64")),
    "ContainerDevices": (
        ("resource_name", 1, False, "string"),
        ("device_ids", 2, True, "string"),
        ("topology", 3, False, "TopologyInfo"),
    ),
    "TopologyInfo": (("nodes", 1, True, "NUMANode"),),
    "NUMANode": (("ID", 1, False, "int64"),),
    "DynamicResource": (
        ("claim_name", 2, False, "string"),
        ("claim_namespace", 3, False, "string"),
        ("claim_resources", 4, True, "ClaimResource"),
    ),
    "ClaimResource": (
        ("driver_name", 2, False, "string"),
        ("pool_name", 3, False, "string"),
        ("device_name", 4, False, "string"),
    ),
}


def reply(*pods: dict[str, Any]) -> bytes:
    """Return a ListPodResourcesResponse with these pods, encoded by the library of Protocol Buffers."""
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # noqa: PLC0415

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, repeated, kind in fields:
            made = message.field.add(name=field, number=number)
            made.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".v1.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))()
    return json_format.ParseDict({"pod_resources": list(pods)}, made).SerializeToString()


def pod(namespace: str, name: str, **containers: dict[str, list[str]]) -> dict[str, Any]:
    """Return a pod for `reply`: of each container the IDs of devices by resource."""
    return {
        "name": name,
        "namespace": namespace,
        "cpu_ids": [0, 1, 130],
        "containers": [
            {
                "name": container.replace("_", "-"),
                "cpu_ids": [2, 300],
                "memory": [{"memory_type": "memory", "size": 1 << 40}],
                "devices": [
                    {"resource_name": resource, "device_ids": ids, "topology": {"nodes": [{"ID": 1}]}}
                    for resource, ids in devices.items()
                ],
            }
            for container, devices in containers.items()
        ],
    }


@contextlib.asynccontextmanager
async def serving(
    socket: Path, answer: Callable[[], Awaitable[bytes]], called: list[str] | None = None
) -> AsyncIterator[list[str]]:
    """Serve the API while the context lasts, and yield the methods that were called."""
    grpc = pytest.importorskip("grpc", reason="needs grpcio")
    pytest.importorskip("grpc.aio", reason="needs grpcio")
    called = [] if called is None else called

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            called.append(details.method)
            return grpc.unary_unary_rpc_method_handler(self._list) if details.method == METHOD else None

        async def _list(self, request, _context):
            assert request == b""
            return await answer()

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield called
    finally:
        await server.stop(None)


@contextlib.contextmanager
def serving_in_thread(socket: Path, data: bytes, seconds: float = 0.0) -> Iterator[list[str]]:
    """Serve one reply to other processes, some seconds after each call, and yield the methods that were called."""
    pytest.importorskip("grpc", reason="needs grpcio")
    started = threading.Event()
    ended: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def answer() -> bytes:
        await asyncio.sleep(seconds)
        return data

    called: list[str] = []

    async def serve() -> None:
        async with serving(socket, answer, called):
            ended.append((asyncio.get_running_loop(), asyncio.Event()))
            started.set()
            await ended[0][1].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield called
    finally:
        for loop, event in ended:
            loop.call_soon_threadsafe(event.set)
        thread.join()


@contextlib.asynccontextmanager
async def serving_bytes(socket: Path, data: bytes) -> AsyncIterator[None]:
    """Serve what is no HTTP/2: the same bytes to every connection."""

    async def send(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(send, socket)
    async with server:
        yield
