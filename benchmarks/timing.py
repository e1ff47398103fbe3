"""Overhead of `fabric_timing.py` in a training job: CPU time of a watched collective minus that of an unwatched one.

The collective does nothing, so that nothing hides the overhead, and all threads of the process are counted, so that
sending is included. If torch is installed, the hook's own time around an all_reduce of gloo is measured too. On the
exporter's side, the parsing of the resulting datagrams is measured.
"""

import importlib.util
import os
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

from measure import Limit

from exporter.nccl.datagram import parse_datagram

FILE = Path(__file__).resolve().parent.parent / "exporter" / "hook" / "fabric_timing.py"
CALLS = 20_000
ROUNDS = 7
BAR = 10.0
"""Maximum microseconds per collective."""

MIN_RECORDS = 50_000
"""Minimum records per second that one core has to parse."""


class _Tensor:
    """The parts of a tensor that the hook uses."""

    is_cuda, is_cpu = False, True

    def numel(self) -> int:
        return 1024

    def element_size(self) -> int:
        return 4

    def get_device(self) -> int:
        return 0


class _GpuTensor(_Tensor):
    is_cuda, is_cpu = True, False


class _Event:
    """An event without cost, which completes at once."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.timed = enable_timing

    def record(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: "_Event") -> float:
        return 0.5


class _Group:
    group_name = "0"


def run() -> list[Limit]:
    """Run all measurements."""
    found: list[Limit] = []
    with _receiver() as received:
        hook = _load()
        torch = _replacement()
        sys.modules.update({"torch": torch, "torch.distributed": torch.distributed, _CORE: torch.core})
        bare = torch.distributed.all_reduce
        hook.watch()
        for name, tensor in (("host clock", _Tensor()), ("GPU events without cost", _GpuTensor())):
            cost = _difference(lambda one=tensor: torch.distributed.all_reduce(one), lambda one=tensor: bare(one))  # type: ignore[misc]
            found.append(Limit(f"a watched collective, {name}", "µs CPU", cost, BAR))
        found.append(Limit("a `with` statement", "µs CPU", _difference(lambda: _timed(hook), lambda: None), BAR))
        hook.unwatch()
        for name in ("torch", "torch.distributed", _CORE):
            del sys.modules[name]
        if importlib.util.find_spec("torch") is not None:
            found.append(
                Limit("a watched all_reduce of torch, in the thread that calls it", "µs", _with_torch(_load()), BAR)
            )
        else:
            print("skipped: torch is not installed")
    records, seconds = _parse(received)
    found.append(Limit("a record parsed by the exporter", "µs CPU", seconds / records * 1e6, 1e6 / MIN_RECORDS))
    return found


_CORE = "torch.distributed.distributed_c10d"


def _load() -> Any:  # noqa: ANN401  # a module
    """Load the file as a job would."""
    spec = importlib.util.spec_from_file_location("fabric_timing", FILE)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{FILE} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _replacement() -> Any:  # noqa: ANN401  # a module
    """Return a module that replaces torch."""
    torch, distributed, core = (types.ModuleType(name) for name in ("torch", "torch.distributed", _CORE))
    world = _Group()
    rest: dict[str, Any] = {
        "group": types.SimpleNamespace(WORLD=world),
        "is_initialized": lambda: True,
        "get_rank": lambda _=None: 0,
        "get_world_size": lambda: 1,
        "get_process_group_ranks": lambda _: [0],
        "get_backend": lambda _: "gloo",
        "distributed_c10d": core,
        "all_reduce": _all_reduce,
    }
    vars(distributed).update(rest)
    store = types.SimpleNamespace(compare_set=lambda _key, _expected, wanted: wanted.encode())
    vars(core).update(all_reduce=_all_reduce, _get_default_store=lambda: store)
    cuda = types.SimpleNamespace(
        Event=_Event, is_current_stream_capturing=lambda: False, get_device_properties=lambda _: object()
    )
    vars(torch).update(distributed=distributed, core=core, cuda=cuda)
    return torch


def _all_reduce(tensor: object, op: object = None, group: object = None, async_op: bool = False) -> None:
    """Do nothing, with the parameters of torch's function."""


def _timed(hook: Any) -> None:  # noqa: ANN401  # a module
    with hook.collective("AllReduce", "dp", 4096):
        pass


def _with_torch(hook: Any) -> float:  # noqa: ANN401  # a module
    """Return the microseconds of the hook's own code in the job's thread, before and after a real all_reduce.

    The increase of the total time would measure gloo instead: waking its thread is cheaper right after the last call,
    so that any work between two calls appears to cost several times as much.
    """
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415  # it may be missing

    core = torch.distributed.distributed_c10d
    bare, now, tensor = core.all_reduce, time.perf_counter_ns, torch.ones(1)
    inside = [0, 0]

    def all_reduce(tensor: object, op: object = None, group: object = None, async_op: bool = False) -> None:
        inside[0] = now()
        bare(tensor, op or torch.distributed.ReduceOp.SUM, group, async_op)
        inside[1] = now()

    torch.distributed.all_reduce = core.all_reduce = all_reduce
    with tempfile.TemporaryDirectory() as place:
        torch.distributed.init_process_group("gloo", init_method=f"file://{place}/store", rank=0, world_size=1)
        hook.watch()
        found = []
        for _ in range(CALLS):
            began = now()
            torch.distributed.all_reduce(tensor)
            found.append(now() - inside[1] + inside[0] - began)
        hook.unwatch()
        hook.flush()
        torch.distributed.destroy_process_group()
    return mean(found) / 1000


def _difference(watched: Callable[[], object], bare: Callable[[], object]) -> float:
    """Return the additional CPU microseconds per call, of all threads; the median of ROUNDS."""
    found = []
    for _ in range(ROUNDS):
        with_hook, without = _cpu(watched), _cpu(bare)
        found.append((with_hook - without) / CALLS * 1e6)
    return median(found)


def _cpu(call: Callable[[], object]) -> float:
    """Return the CPU seconds of CALLS calls at the rate of a fast job, so that the sender thread keeps up."""
    began = time.process_time()
    for _ in range(CALLS // 100):
        for _ in range(100):
            call()
        time.sleep(0.001)
    return time.process_time() - began


@contextmanager
def _receiver() -> Iterator[list[bytes]]:
    """Receive all datagrams; the small cost of receiving is counted as overhead."""
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/timing.sock"
        os.environ["FABRIC_TIMING_SOCKET"] = path
        received: list[bytes] = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.bind(path)
            ours.settimeout(0.2)
            thread = threading.Thread(target=_receive, args=(ours, received), daemon=True)
            thread.start()
            yield received
            time.sleep(0.5)
            ours.close()
            thread.join(5)


def _receive(ours: socket.socket, received: list[bytes]) -> None:
    while True:
        try:
            received.append(ours.recv(1 << 16))
        except TimeoutError:
            continue
        except OSError:
            return


def _parse(received: list[bytes]) -> tuple[int, float]:
    """Parse all datagrams; return the number of records and the CPU seconds."""
    began = time.thread_time()
    records = sum(len(parse_datagram(one).operations) for one in list(received))
    return records, time.thread_time() - began
