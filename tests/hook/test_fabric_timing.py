"""The hook with a simulated torch: what it sends, and that it does not disturb the job."""

import ast
import atexit
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import types

import pytest

from exporter.mqtt.topics import batch_topic, parse_batch_topic
from exporter.nccl.datagram import MAX_DATAGRAM, parse_datagram
from tests.fixtures.previous.datagram import parse_datagram as parse_previous
from tests.helpers.paths import FIXTURES, ROOT

FILE = ROOT / "exporter" / "hook" / "fabric_timing.py"


class Store:
    """Simulated store of torch: the first rank sets the value."""

    def __init__(self):
        self.words = {}

    def compare_set(self, key, expected, wanted):
        assert expected == ""
        return self.words.setdefault(key, wanted.encode())


class Group:
    def __init__(self, name, ranks, backend="gloo"):
        self.group_name, self.ranks, self.backend = name, ranks, backend


class Tensor:
    def __init__(self, count, size=4, device="cpu"):
        self.count, self.size = count, size
        self.is_cuda, self.is_cpu = device == "cuda", device == "cpu"

    def numel(self):
        return self.count

    def element_size(self):
        return self.size

    def get_device(self):
        return 0


class P2POp:
    def __init__(self, tensor, group=None):
        self.tensor, self.group = tensor, group


class Future:
    def __init__(self, error=None):
        self.callbacks, self.error = [], error

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def value(self):
        if self.error:
            raise self.error

    def finish(self):
        for one in self.callbacks:
            one(self)


class Work:
    def __init__(self, future):
        self.future = future

    def get_future(self):
        if self.future is None:
            raise RuntimeError("not implemented")
        return self.future


class Gpu:
    """A simulated GPU; an event completes when the test sets its time."""

    def __init__(self):
        self.events, self.synchronised, self.capturing, self.asked = [], 0, False, set()

    def event(self):
        gpu = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing
                self.at = None
                gpu.events.append(self)

            def record(self):
                assert not gpu.capturing, "it would be captured by the graph"
                self.at = None

            def query(self):
                assert not gpu.capturing, "a query invalidates the capture"
                gpu.asked.add(threading.current_thread())
                return self.at is not None

            def elapsed_time(self, later):
                return later.at - self.at

            def synchronize(self):
                gpu.synchronised += 1

        return Event

    def synchronize(self, *_):
        self.synchronised += 1


PARAMETERS = {
    "all_reduce": "tensor, op=None, group=None, async_op=False",
    "all_gather": "tensor_list, tensor, group=None, async_op=False",
    "all_gather_into_tensor": "output_tensor, input_tensor, group=None, async_op=False",
    "all_gather_single": "output_tensor, input_tensor, group=None, async_op=False",
    "reduce_scatter_single": "output, input, op=None, group=None, async_op=False",
    "reduce_scatter": "output, input_list, op=None, group=None, async_op=False",
    "reduce_scatter_tensor": "output, input, op=None, group=None, async_op=False",
    "broadcast": "tensor, src=None, group=None, async_op=False, group_src=None",
    "all_to_all": "output_tensor_list, input_tensor_list, group=None, async_op=False",
    "all_to_all_single": "output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False",
    "send": "tensor, dst=None, group=None, tag=0, group_dst=None",
    "recv": "tensor, src=None, group=None, tag=0, group_src=None",
    "barrier": "group=None, async_op=False, device_ids=None, timeout=None",
    "batch_isend_irecv": "p2p_op_list",
}
"""Functions of torch.distributed, with their parameters in torch 2.13."""


class Torch:
    """The parts of torch that the hook uses."""

    def __init__(self):
        self.gpu, self.store, self.calls, self.result = Gpu(), Store(), [], None
        self.world = Group("0", [0, 1, 2, 3])
        self.module = types.ModuleType("torch")
        distributed = types.ModuleType("torch.distributed")
        core = types.ModuleType("torch.distributed.distributed_c10d")
        properties = types.SimpleNamespace(uuid="a1b2", pci_bus_id=0xC8, pci_device_id=0, pci_domain_id=0)
        self.module.distributed, distributed.distributed_c10d = distributed, core
        self.module.cuda = types.SimpleNamespace(
            Event=self.gpu.event(),
            is_current_stream_capturing=lambda: self.gpu.capturing,
            get_device_properties=lambda _: properties,
            current_device=lambda: 0,
            synchronize=self.gpu.synchronize,
        )
        self.module.compiler = types.SimpleNamespace(is_compiling=lambda: self.compiling)
        self.compiling = False
        core._world = types.SimpleNamespace(pg_coalesce_state={})
        self.coalescing = core._world.pg_coalesce_state
        core._get_default_store = lambda: self.store
        distributed.group = types.SimpleNamespace(WORLD=self.world)
        distributed.is_initialized = lambda: True
        distributed.get_rank = lambda group=None: (
            1 if group is None else group.ranks.index(1) if 1 in group.ranks else -1
        )
        distributed.get_world_size = lambda: 4
        distributed.get_process_group_ranks = lambda group: group.ranks
        distributed.get_backend = lambda group: group.backend
        for function in self.functions():
            setattr(distributed, function.__name__, function)
            setattr(core, function.__name__, function)
        self.distributed, self.core = distributed, core

    def functions(self):
        def done(name):
            self.calls.append(name)
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

        for name, parameters in PARAMETERS.items():
            scope = {"done": done}
            exec(f"def {name}({parameters}): return done({name!r})", scope)
            yield scope[name]


class Listener:
    """Receives datagrams."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(20)
        self.received = []

    def until(self, enough):
        """Receive datagrams until `enough` of them; return all, parsed as by the exporter."""
        while not enough(self.received):
            assert len(self.received) < 10_000, "more datagrams than expected"
            data = self.socket.recv(1 << 16)
            assert len(data) <= MAX_DATAGRAM
            self.received.append(parse_datagram(data))
        return self.received

    def operations(self, count):
        received = self.until(lambda received: sum(len(one.operations) for one in received) >= count)
        return [(one.groups[op.communicator], op) for one in received for op in one.operations]


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.setenv("FABRIC_TIMING_SOCKET", str(tmp_path / "timing.sock"))
    made = Listener(str(tmp_path / "timing.sock"))
    yield made
    made.socket.close()


@pytest.fixture
def load(monkeypatch):
    """Return a function that loads the file as a new process would; its threads end with the test."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TORCHELASTIC_")) or name in {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}:
            monkeypatch.delenv(name)
    loaded = []

    def new():
        spec = importlib.util.spec_from_file_location("fabric_timing", FILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "TICK", 0.02)
        loaded.append(module)
        return module

    yield new
    for module in loaded:
        atexit.unregister(module.flush)
        hook = module._hook
        hook.off = True
        hook.wake.set()
        if hook.thread is not None:
            hook.thread.join(20)
        if isinstance(hook.transport, module._Unix):
            hook.transport.close()


@pytest.fixture
def torch(monkeypatch):
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made.module)
    monkeypatch.setitem(sys.modules, "torch.distributed", made.distributed)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", made.core)
    return made


# --- the file


def test_hook_needs_python_3_9_and_the_standard_library_only():
    tree = ast.parse(FILE.read_text(), feature_version=(3, 9))
    names = [one for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    modules = {one.name for one in names} | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {one.split(".")[0] for one in modules} <= sys.stdlib_module_names
    assert "match" not in {type(node).__name__.lower() for node in ast.walk(tree)}
    # Annotations are never evaluated; elsewhere `X | None`, zip(strict=) and dataclass(slots=) would fail.
    assert "from __future__ import annotations" in FILE.read_text()
    keywords = {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
    assert not keywords & {"strict", "slots", "kw_only"}


PREVIOUS = FIXTURES / "previous" / "fabric_timing.py"


@pytest.mark.parametrize("file", [FILE, PREVIOUS], ids=["this version", "the previous version"])
def test_copied_file_sends_everything_at_exit(tmp_path, listener, file):
    (tmp_path / "fabric_timing.py").write_text(file.read_text())
    job = """
import fabric_timing
with fabric_timing.collective("AllReduce", group="dp", size=64, rank=1, ranks=2):
    pass
fabric_timing.step(9)
"""
    environment = {"FABRIC_TIMING_SOCKET": os.environ["FABRIC_TIMING_SOCKET"], "PYTHONPATH": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", job], env=environment, cwd=tmp_path, check=True, timeout=60
    )
    ((group, one),) = listener.operations(1)
    assert (group.title, group.rank, group.size, one.kind, one.sequence, one.message_bytes) == (
        "dp", 1, 2, "AllReduce", 0, 64)  # fmt: skip
    assert one.queued == (0 if file is FILE else None)
    steps = [
        step for sent in listener.until(lambda received: any(one.steps for one in received)) for step in sent.steps
    ]
    assert [(one.number, one.tokens, one.flops) for one in steps] == [(1, 9, None)]


# --- what is sent

BYTES = {
    # 1,000 numbers of 4 bytes a tensor, as NCCL counts: the input of one rank, and of a ReduceScatter its output
    "all_reduce": (lambda t: ((t(),), {}), "AllReduce", 4000),
    "all_gather": (lambda t: (([t(), t()], t()), {}), "AllGather", 4000),
    "all_gather_into_tensor": (lambda t: ((t(4000), t()), {}), "AllGather", 4000),
    "all_gather_single": (lambda t: ((t(4000), t()), {}), "AllGather", 4000),
    "reduce_scatter_single": (lambda t: ((t(), t(4000)), {}), "ReduceScatter", 4000),
    "reduce_scatter": (lambda t: ((t(), [t(), t()]), {}), "ReduceScatter", 4000),
    "reduce_scatter_tensor": (lambda t: ((t(), t(4000)), {}), "ReduceScatter", 4000),
    "broadcast": (lambda t: ((t(), 0), {}), "Broadcast", 4000),
    "all_to_all": (lambda t: (([t(1)], [t(), t()]), {}), "AlltoAll", 8000),
    "all_to_all_single": (lambda t: ((t(1), t()), {}), "AlltoAll", 4000),
    "send": (lambda t: ((t(), 2), {}), "Send", 4000),
    "recv": (lambda t: ((t(),), {"src": 2}), "Recv", 4000),
    "barrier": (lambda _: ((), {}), "Barrier", 0),
}


@pytest.mark.parametrize("function", BYTES)
def test_functions_are_timed_with_kind_and_bytes(function, torch, load, listener):
    arguments, kind, size = BYTES[function]
    load().watch()
    args, kwargs = arguments(lambda count=1000: Tensor(count))
    getattr(torch.distributed, function)(*args, **kwargs)
    ((group, one),) = listener.operations(1)
    assert len(torch.calls) == 1
    assert (one.kind, one.message_bytes, one.sequence, one.timing) == (kind, size, 0, "host")
    assert (group.rank, group.size) == (1, 4)


def test_sequence_numbers_are_per_communicator_and_kind(torch, load, listener):
    load().watch()
    pair = Group("7", [1, 3])
    for call in (
        lambda: torch.distributed.all_reduce(Tensor(1)),
        lambda: torch.distributed.all_reduce(Tensor(2), group=torch.world),
        lambda: torch.core.all_reduce(Tensor(3), None, pair),
        lambda: torch.distributed.all_reduce(tensor=Tensor(4), group=pair),
        lambda: torch.distributed.broadcast(Tensor(5), 0, pair),
    ):
        call()
    sent = [(group.title, group.rank, group.size, one.kind, one.sequence, one.message_bytes // 4)
            for group, one in listener.operations(5)]  # fmt: skip
    assert sent == [
        ("0", 1, 4, "AllReduce", 0, 1),
        ("0", 1, 4, "AllReduce", 1, 2),
        ("7", 0, 2, "AllReduce", 0, 3),
        ("7", 0, 2, "AllReduce", 1, 4),
        ("7", 0, 2, "Broadcast", 0, 5),
    ]


def test_nested_functions_are_timed_once(torch, load, listener):
    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        return torch.core.all_gather_single(output_tensor, input_tensor, group, async_op)

    torch.distributed.all_gather_into_tensor = torch.core.all_gather_into_tensor = all_gather_into_tensor
    load().watch()
    torch.distributed.all_gather_into_tensor(Tensor(4), Tensor(1))
    torch.distributed.all_gather_single(Tensor(4), Tensor(1))
    assert [(one.kind, one.sequence) for _, one in listener.operations(2)] == [("AllGather", 0), ("AllGather", 1)]
    assert torch.calls == ["all_gather_single"] * 2


def test_communicator_id_is_equal_on_all_ranks_and_unique_per_run(torch, load, listener):
    def names():
        load().watch()
        torch.distributed.all_reduce(Tensor(1))
        torch.distributed.all_reduce(Tensor(1), group=pair)
        listener.received.clear()
        found = {group.title: group.id for group, _ in listener.operations(2)}
        for module in (torch.distributed, torch.core):
            module.all_reduce = module.all_reduce.fabric_timing
        return found

    pair = Group("7", [1, 3])
    first, second = names(), names()  # two processes that share a store
    assert first == second
    assert len(set(first.values())) == 2
    torch.store.words.clear()
    assert not set(names().values()) & set(first.values())


def test_only_listed_environment_variables_are_sent(torch, load, listener, monkeypatch):
    for name, value in {"SLURM_JOB_ID": "77", "LOCAL_WORLD_SIZE": "2", "SECRET": "hush", "POD_NAME": 'ü"\n'}.items():
        monkeypatch.setenv(name, value)
    load().watch()
    torch.distributed.barrier()
    ((group, _),) = listener.operations(1)
    (sent, *_) = listener.received
    assert sent.env == {"SLURM_JOB_ID": "77", "LOCAL_WORLD_SIZE": "2", "POD_NAME": "___"}
    assert (sent.pid, sent.rank, sent.world, sent.host) == (os.getpid(), 1, 4, socket.gethostname())
    assert group.nodes == 2


def test_unfinished_collectives_are_reported_as_progress(torch, load, listener):
    load().watch()
    torch.result = Work(Future())
    torch.distributed.all_reduce(Tensor(1), async_op=True)
    torch.result = None
    torch.distributed.barrier()
    received = listener.until(lambda received: any(one.counts and not one.operations for one in received))
    assert (received[-1].counts[0].kind, received[-1].counts[0].begun, received[-1].counts[0].ended) == (
        "AllReduce",
        1,
        0,
    )


# --- asynchronous collectives


def test_asynchronous_collective_is_timed_until_completion(torch, load, listener, monkeypatch):
    module = load()
    module.watch()
    now = [1_000_000_000]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    torch.result = work = Work(Future())
    assert torch.distributed.all_reduce(Tensor(1), async_op=True) is work
    now[0] += 7_000_000
    work.future.finish()
    now[0] += 9_000_000
    ((_, one),) = listener.operations(1)
    assert (one.microseconds, one.began) == (7000, 1_000_000)


def test_times_of_the_host_contain_the_whole_time_since_the_call(torch, load, listener, monkeypatch):
    """Gloo runs two at a time: one is not queued behind the one before, and where it is, that is part of its time."""
    module = load()
    module.watch()
    now = [1_000_000_000]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: now[0])
    works = [Work(Future()), Work(Future())]
    for work in works:
        torch.result = work
        torch.distributed.all_reduce(Tensor(1), async_op=True)
    for work in works:
        now[0] += 7_000_000
        work.future.finish()
    assert [(one.microseconds, one.queued) for _, one in listener.operations(2)] == [(7000, 0), (14_000, 0)]


@pytest.mark.parametrize(
    ("result", "function"),
    [
        (Work(None), "all_reduce"),  # like gloo's sends
        (None, "all_reduce"),  # of a rank that does not take part
        ([Work(None), Work(None)], "batch_isend_irecv"),
        (Work(Future()), "barrier"),
    ],
)
def test_collective_without_completion_event_is_untimed(torch, load, listener, result, function):
    load().watch()
    torch.result = result
    arguments = ([P2POp(Tensor(1), torch.world)],) if function == "batch_isend_irecv" else (Tensor(1),)
    arguments = () if function == "barrier" else arguments
    flag = {} if function == "batch_isend_irecv" else {"async_op": True}
    assert getattr(torch.distributed, function)(*arguments, **flag) is result
    torch.result = None
    torch.distributed.broadcast(Tensor(1))
    assert [one.kind for _, one in listener.operations(1)] == ["Broadcast"]
    assert listener.received[-1].untimed == 1
    assert listener.received[-1].faults == 0


def test_failed_asynchronous_collective_is_untimed(torch, load):
    module = load()
    module.watch()
    torch.result = Work(Future(RuntimeError("connection lost")))
    torch.distributed.all_reduce(Tensor(1), async_op=True)
    torch.result.future.finish()
    assert (module._hook.untimed, len(module._hook.ring), module._hook.faults) == (1, 0, 0)


# --- GPUs


@pytest.fixture
def on_gpu(torch, load):
    """A loaded and watching module whose records stay in the ring buffer."""
    torch.world.backend = "nccl"
    module = load()
    module._hook.thread = threading.current_thread()  # so that none is started
    module.watch()
    yield module
    module._hook.thread = None


def reduce(torch):
    torch.distributed.all_reduce(Tensor(250, device="cuda"))


def test_gpu_is_timed_with_events_and_without_synchronisation(torch, on_gpu):
    reduce(torch)
    start, end = torch.gpu.events
    assert not on_gpu._hook.ring
    reduce(torch)
    assert not on_gpu._hook.ring, "not completed yet"
    start.at, end.at = 10.0, 12.5  # milliseconds
    reduce(torch)
    (record,) = on_gpu._hook.ring
    assert record[1:5] == ("AllReduce", 0, 1000, 2500)
    assert record[6] == "gpu"
    assert on_gpu._hook.gpu == {"uuid": "a1b2", "pci": "0000:c8:00.0"}
    assert torch.gpu.synchronised == 0


def test_queued_collective_is_timed_from_the_end_of_the_previous_one(torch, on_gpu):
    for _ in range(3):
        reduce(torch)
    events = torch.gpu.events
    for event, at in zip(events, (10.0, 20.0, 11.0, 25.0, 40.0, 43.0), strict=True):
        event.at = at
    on_gpu._hook.poll()
    assert [record[4] for record in on_gpu._hook.ring] == [10_000, 5_000, 3_000]
    # They were reached at 10, 11 and 40: the second one waited from 11 to 20 for the end of the first.
    assert [record[7] for record in on_gpu._hook.ring] == [0, 9_000, 0]


def test_time_in_the_queue_shows_how_late_a_rank_was(torch, on_gpu):
    """Two ranks end together at 30 and 50; one reached the second collective at 12, the other one at 35."""
    hook = on_gpu._hook
    for reached in (12.0, 35.0):
        for _ in range(2):
            reduce(torch)
        waiting = [event for one in hook.pending for event in (one.start, one.end)]
        for event, at in zip(waiting, (10.0, 30.0, reached, 50.0), strict=True):
            event.at = at
        hook.poll()
        hook.groups.clear()  # as in another process
    whole = [record[4] + record[7] for record in hook.ring]
    assert whole == [20_000, 38_000, 20_000, 15_000]
    assert whole[1] - whole[3] == 23_000, "the second rank was late by that"


def test_time_in_the_queue_counts_collectives_of_all_kinds_of_the_communicator_only(torch, on_gpu):
    pair = Group("7", [1, 3], backend="nccl")
    reduce(torch)
    torch.distributed.all_gather_into_tensor(Tensor(4, device="cuda"), Tensor(1, device="cuda"))
    torch.distributed.all_reduce(Tensor(1, device="cuda"), group=pair)
    for event, at in zip(torch.gpu.events, (0.0, 8.0, 5.0, 12.0, 6.0, 14.0), strict=True):
        event.at = at
    on_gpu._hook.poll()
    assert [record[4] for record in on_gpu._hook.ring] == [8_000, 4_000, 8_000]
    assert [record[7] for record in on_gpu._hook.ring] == [0, 3_000, 0]


@pytest.mark.parametrize("decode", [parse_datagram, parse_previous], ids=["this version", "the previous version"])
def test_exporters_read_what_is_sent_of_a_gpu(torch, on_gpu, decode):
    for _ in range(2):
        reduce(torch)
    for event, at in zip(torch.gpu.events, (10.0, 20.0, 11.0, 25.0), strict=True):
        event.at = at
    on_gpu._hook.poll()
    read = decode(on_gpu._hook.encode(list(on_gpu._hook.ring), [], [])).operations
    assert [(one.sequence, one.microseconds, one.timing) for one in read] == [(0, 10_000, "gpu"), (1, 5_000, "gpu")]
    if decode is parse_datagram:
        assert [one.queued for one in read] == [0, 9_000]


def test_events_are_reused(torch, on_gpu):
    for step in range(1000):
        reduce(torch)
        for event in torch.gpu.events:
            event.at = event.at or float(step)
    assert len(torch.gpu.events) <= 8
    assert len(on_gpu._hook.ring) == 999


def test_pending_collectives_of_a_hung_gpu_are_bounded(torch, on_gpu):
    for _ in range(on_gpu.MAX_PENDING + 100):
        reduce(torch)
    assert len(torch.gpu.events) == 2 * on_gpu.MAX_PENDING
    assert on_gpu._hook.untimed == 100
    assert not on_gpu._hook.ring


def test_asynchronous_collective_ends_on_the_waiting_stream(torch, on_gpu):
    torch.result = Work(Future())
    torch.distributed.all_reduce(Tensor(250, device="cuda"), async_op=True)
    assert len(torch.gpu.events) == 1
    torch.result.future.finish()
    start, end = torch.gpu.events
    start.at, end.at = 1.0, 1.25
    on_gpu._hook.poll()
    assert [record[4] for record in on_gpu._hook.ring] == [250]


def test_graph_capture_is_not_disturbed(torch, on_gpu):
    reduce(torch)
    torch.gpu.capturing = True
    reduce(torch)  # simulated events assert that they are not used
    assert torch.calls == ["all_reduce"] * 2
    assert (on_gpu._hook.untimed, on_gpu._hook.faults) == (1, 0)


def test_events_are_queried_from_job_threads_only(torch, load, listener):
    torch.world.backend = "nccl"
    load().watch()
    for step in range(5):
        reduce(torch)
        for event in torch.gpu.events:
            event.at = float(step) if event.at is None else event.at
        torch.distributed.broadcast(Tensor(1))
    listener.operations(9)
    assert torch.gpu.asked == {threading.current_thread()}


@pytest.mark.parametrize("why", ["another device", "coalescing", "compiling"])
def test_other_devices_coalescing_and_compilation_are_untimed(why, torch, on_gpu):
    if why == "coalescing":
        torch.coalescing["group"] = []
    torch.compiling = why == "compiling"
    torch.distributed.all_reduce(Tensor(1, device="xpu" if why == "another device" else "cuda"))
    assert torch.calls == ["all_reduce"]
    assert not on_gpu._hook.pending
    assert not on_gpu._hook.ring
    assert (on_gpu._hook.untimed, on_gpu._hook.faults) == (0 if why == "compiling" else 1, 0)


# --- failures


def test_exceptions_of_the_job_are_propagated(torch, load):
    module = load()
    module.watch()
    torch.result = ValueError("the job's own")
    with pytest.raises(ValueError, match="the job's own"):
        torch.distributed.all_reduce(Tensor(1))
    with pytest.raises(TypeError, match="missing"):
        torch.distributed.all_reduce()
    with pytest.raises(ZeroDivisionError), module.collective("AllReduce"):
        1 / 0  # noqa: B018
    assert not module._hook.ring
    assert module._hook.untimed == 2


def test_hook_disables_itself_after_repeated_failures(torch, load, caplog):
    module = load()
    module.watch()

    def broken(*_):
        raise MemoryError

    module._hook.begin = broken
    with caplog.at_level(logging.INFO):
        for _ in range(3 * module.FAULTS):
            torch.distributed.all_reduce(Tensor(1))
            with module.collective("AllReduce"):
                pass
    assert torch.calls == ["all_reduce"] * 3 * module.FAULTS
    assert [one.message for one in caplog.records] == ["collectives are no longer timed after 8 failures"]


def test_failures_after_a_collective_do_not_reach_the_job(torch, load):
    module = load()
    module.watch()
    module._hook.record = None
    torch.result = "mine"
    assert torch.distributed.all_reduce(Tensor(1)) == "mine"
    torch.result = work = Work(Future())
    assert torch.distributed.all_reduce(Tensor(1), async_op=True) is work
    work.future.finish()
    assert module._hook.faults == 2


def test_job_continues_without_torch_or_with_other_functions(load, torch, monkeypatch, caplog):
    def all_reduce(tensors):
        return tensors

    torch.distributed.all_reduce = torch.core.all_reduce = all_reduce
    load().watch()
    assert torch.distributed.all_reduce([1]) == [1]
    assert hasattr(torch.distributed.broadcast, "fabric_timing")
    monkeypatch.setitem(sys.modules, "torch", None)
    load().watch()
    assert [one.message for one in caplog.records] == [
        "all_reduce is not timed: all_reduce has no parameter tensor",
        "torch.distributed is not available: no collectives are timed",
    ]


def test_exit_does_not_wait_for_a_hung_store(torch, load, listener, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(torch.store, "compare_set", lambda *_: released.wait(20) and b"word")
    module = load()
    module.watch()
    torch.distributed.all_reduce(Tensor(1))
    module.flush()
    assert not listener.received
    assert not released.is_set()
    released.set()
    assert len(listener.operations(1)) == 1


def test_hook_can_be_disabled(torch, load, monkeypatch):
    monkeypatch.setenv("FABRIC_TIMING", "0")
    original = torch.distributed.all_reduce
    module = load()
    module.watch()
    assert torch.distributed.all_reduce is original
    with module.collective("AllReduce"):
        module.step()
    module.flush()
    assert module._hook.thread is None


def test_watch_is_idempotent_and_unwatch_restores_the_functions(torch, load):
    module = load()
    before = {name: getattr(torch.distributed, name) for name in BYTES}
    module.watch()
    module.watch()
    assert before["all_reduce"] is torch.distributed.all_reduce.fabric_timing
    torch.distributed.all_reduce(Tensor(1))
    assert next(iter(module._hook.groups.values())).counts == {"AllReduce": [1, 1]}
    module.unwatch()
    assert {name: getattr(torch.distributed, name) for name in BYTES} == before
    assert torch.core.all_reduce is before["all_reduce"]


def test_deleted_groups_free_their_slots(torch, load):
    module = load()
    module._hook.thread = threading.current_thread()  # so that none is started, and records stay in the ring
    module.watch()
    for number in range(2 * module.MAX_GROUPS):
        torch.distributed.all_reduce(Tensor(1), group=Group(str(number), [0, 1]))
    assert len(module._hook.groups) <= module.MAX_GROUPS
    assert {record[2] for record in module._hook.ring} == {0}, "each is the first of its group"
    assert module._hook.untimed == 0
    kept = [Group(str(number), [0, 1]) for number in range(module.MAX_GROUPS + 5)]
    for group in kept:
        torch.distributed.all_reduce(Tensor(1), group=group)
    assert module._hook.untimed == 5
    assert all(group.counts["AllReduce"][0] == 1 for group in module._hook.groups.values())
    module._hook.thread = None


def test_rank_outside_a_group_is_not_timed(torch, load):
    module = load()
    module.watch()
    torch.distributed.all_reduce(Tensor(1), group=Group("8", [2, 3]))
    assert (torch.calls, module._hook.faults, module._hook.untimed) == (["all_reduce"], 0, 1)


# --- missing and slow receivers


def test_records_are_sent_once_there_is_a_receiver(torch, load, tmp_path, monkeypatch):
    path = str(tmp_path / "timing.sock")
    monkeypatch.setenv("FABRIC_TIMING_SOCKET", path)
    module = load()
    monkeypatch.setattr(module, "RETRY", 0.05)
    module.watch()
    torch.distributed.all_reduce(Tensor(1))
    module.flush()
    late = Listener(path)
    assert [one.sequence for _, one in late.operations(1)] == [0]
    late.socket.close()


def test_memory_is_bounded_without_a_receiver_and_losses_are_counted(torch, load, tmp_path, monkeypatch):
    path = str(tmp_path / "timing.sock")
    monkeypatch.setenv("FABRIC_TIMING_SOCKET", path)
    module = load()
    module.watch()
    for _ in range(module.RING + 1000):
        torch.distributed.all_reduce(Tensor(1))
    hook = module._hook
    assert len(hook.ring) + len(hook.batch) <= module.RING + module.BATCH
    late = Listener(path)
    hook.retry = 0.0
    sent = [one.sequence for _, one in late.operations(len(hook.ring) + len(hook.batch))]
    assert len(sent) + late.received[-1].dropped == module.RING + 1000
    assert late.received[-1].dropped >= 1000 - module.BATCH
    assert sent[-1] == module.RING + 999
    assert len(set(sent)) == len(sent)
    late.socket.close()


def test_full_socket_does_not_block_and_loses_nothing(torch, load, listener):
    module = load()
    module.watch()
    count = 60 * module.BATCH  # more datagrams than a socket takes
    for _ in range(count):
        torch.distributed.all_reduce(Tensor(1))
    assert [one.sequence for _, one in listener.operations(count)] == list(range(count))
    assert [one.number for one in listener.received] == list(range(len(listener.received)))


def test_datagram_size_is_bounded(torch, load, listener, monkeypatch):
    for name in ("SLURM_JOB_NAME", "POD_NAME", "POD_NAMESPACE", "JOBSET_NAME", "FABRIC_TIMING_JOB"):
        monkeypatch.setenv(name, '\\"\x7f€' * 500)
    module = load()
    module.watch()
    groups = [Group(f"{number}" * 200, [0, 1]) for number in range(200)]
    for group in groups:
        torch.distributed.all_reduce(Tensor(1), group=group)
    sent = listener.operations(len(groups))  # which checks the lengths
    assert {group.size for group, _ in sent} == {2}
    assert len({group.id for group, _ in sent}) == len(groups)


def test_forked_process_sends_only_its_own_records(tmp_path, listener):
    (tmp_path / "fabric_timing.py").write_text(FILE.read_text())
    job = """
import os, sys
sys.path.insert(0, sys.argv[1])
import fabric_timing as f
with f.collective("AllReduce", group="g"): pass
f.flush()
with f.collective("AllReduce", group="g"): pass
child = os.fork()
with f.collective("Broadcast" if child else "AllGather", group="g"): pass
if child:
    os.waitpid(child, 0)
else:
    f.flush(); os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", job, str(tmp_path)], check=True, timeout=60)
    listener.operations(4)
    sent = sorted((one.kind, one.sequence) for received in listener.received for one in received.operations)
    assert sent == [("AllGather", 0), ("AllReduce", 0), ("AllReduce", 1), ("Broadcast", 0)]
    pids = {one.kind: received.pid for received in listener.received for one in received.operations}
    assert pids["AllGather"] != pids["AllReduce"] == pids["Broadcast"]


# --- by name, without torch's groups


def test_equal_group_names_are_one_communicator(load, listener, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d", raising=False)
    module = load()
    for number in (1, 2):
        with module.collective("AllGather", group="dp-longer"[:2], size=number):
            pass
    with module.collective("AllGather"):
        pass
    sent = [(group.title, group.rank, group.size, one.sequence) for group, one in listener.operations(3)]
    assert sent == [("dp", 2, 8, 0), ("dp", 2, 8, 1), ("world", 2, 8, 0)]


def test_id_of_a_named_communicator_is_equal_on_all_ranks(load, monkeypatch):
    def key(rank, run="9"):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "8")
        monkeypatch.setenv("MASTER_PORT", run)
        hook = load()._hook
        return hook.key(hook.group_of("dp"))

    assert key(0) == key(5)
    assert key(0) != key(0, run="10")


# --- MQTT


class Paho(types.ModuleType):
    """The parts of paho-mqtt 2 that the hook uses."""

    CallbackAPIVersion = types.SimpleNamespace(VERSION2=2)
    made: list = []  # noqa: RUF012

    class Client:
        def __init__(self, *versions):
            self.did, self.connected = [versions], True
            Paho.made.append(self)

        def __getattr__(self, name):
            return lambda *args, **kwargs: self.did.append((name, *args))

        def is_connected(self):
            return self.connected

        def publish(self, topic, data, qos):
            self.did.append(("publish", topic, qos, parse_datagram(data).operations[0].kind))
            return types.SimpleNamespace(rc=0)


def test_records_can_be_published_to_a_broker(load, tmp_path, monkeypatch):
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setitem(sys.modules, "paho", types.ModuleType("paho"))
    monkeypatch.setitem(sys.modules, "paho.mqtt", types.ModuleType("paho.mqtt"))
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", Paho("paho.mqtt.client"))
    monkeypatch.setenv("FABRIC_TIMING_MQTT", "mqtts://jobs@broker.example")
    monkeypatch.setenv("FABRIC_TIMING_MQTT_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("FABRIC_TIMING_JOB", "a/+#b")
    module = load()
    Paho.made.clear()
    with module.collective("AllReduce", group="g"):
        pass
    module.flush()
    (client,) = Paho.made
    assert client.did[:6] == [
        (2,),
        ("username_pw_set", "jobs", "secret"),
        ("tls_set",),
        ("max_queued_messages_set", 64),
        ("connect_async", "broker.example", 8883),
        ("loop_start",),
    ]
    topic = batch_topic("a/+#b", socket.gethostname()).replace("/nccl/", "/timing/")
    assert client.did[6] == ("publish", topic, 1, "AllReduce")
    assert parse_batch_topic(topic) == ("a/+#b", socket.gethostname())


def test_full_socket_differs_from_missing_receiver(load, listener, tmp_path):
    way = load()._Unix(os.environ["FABRIC_TIMING_SOCKET"])
    while (sent := way.send(b"x")) is True:
        pass
    assert sent is False
    way.close()
    assert load()._Unix(str(tmp_path / "nothing")).send(b"x") is None


def test_invalid_numbers_in_the_environment_are_ignored(load, monkeypatch):
    monkeypatch.setenv("RANK", "9" * 5000)
    monkeypatch.setenv("WORLD_SIZE", "²")
    assert (load()._hook.rank, load()._hook.world) == (-1, 0)


def test_full_socket_is_retried_and_step_marks_are_kept(load, listener, monkeypatch):
    module = load()
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    module.step(tokens=5)
    received = listener.until(bool)  # the thread has its transport now
    hook = module._hook
    tries = threading.Semaphore(0)
    hook.transport.send = lambda _: tries.release() or False
    module.step(tokens=6)
    assert all(tries.acquire(timeout=10) for _ in range(8)), "it is retried at every send"
    del hook.transport.send
    listener.until(lambda received: sum(len(one.steps) for one in received) == 2)
    assert [step.tokens for one in received for step in one.steps] == [5, 6]


@pytest.mark.parametrize("url", ["broker.example:1", "mqtt://[broken"])
def test_socket_is_used_without_an_mqtt_client(load, listener, monkeypatch, caplog, url):
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None if url.startswith("broker") else Paho("client"))
    monkeypatch.setenv("FABRIC_TIMING_MQTT", url)
    with load().collective("AllReduce", group="g"):
        pass
    assert len(listener.operations(1)) == 1
    assert [one.message for one in caplog.records if "FABRIC_TIMING_MQTT cannot be used" in one.message]


def test_datagrams_are_json(load, listener):
    with load().collective("AllReduce", group="g", size=5):
        pass
    sent = json.loads(listener.socket.recv(1 << 16))
    assert " ".join(sent) == "v n pid host clock env gpu epoch dropped untimed faults groups ops counts steps"
