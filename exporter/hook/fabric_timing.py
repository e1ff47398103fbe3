"""Time the collectives of a training job and send the timings to fabric-exporter on this node: one line in the job.

    import fabric_timing
    fabric_timing.watch()           # after `import torch`, on every rank, before the first collective

For communication outside torch.distributed: `with fabric_timing.collective("AllReduce", size=bytes):`.
This file needs Python 3.9 or later and the standard library only; copy it anywhere. (Long because it is one file, so
that copying it is enough.) Guarantees to the job:

* It never blocks: no synchronisation, and a non-blocking socket in a thread of its own. Collectives on a GPU are timed
  with CUDA events, which later calls query; those on the CPU with the host's clock.
* It never raises: its own failures are counted, and after FAULTS failures it disables itself and logs a warning.
* It is bounded: a ring buffer of RING records; records that do not fit, or have no receiver, are counted as dropped.

Environment: FABRIC_TIMING=0 disables it, FABRIC_TIMING_SOCKET is the exporter's socket, FABRIC_TIMING_JOB the name of
the job. FABRIC_TIMING_MQTT=[mqtts://][user@]host[:port] sends to a broker instead, with paho-mqtt and the password in
the file FABRIC_TIMING_MQTT_PASSWORD_FILE: for jobs on hosts without an exporter.
"""

# exporter/nccl/datagram.py of fabric-exporter defines the format of datagrams and the meaning of their values.
# ruff: noqa: ANN401, BLE001, LOG014, SIM905  # torch is not typed here, and no failure of any kind may reach the job

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib
import inspect
import json
import logging
import os
import socket
import sys
import threading
import time
import urllib.parse
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

VERSION = 1
SOCKET = "/run/fabric-exporter/timing.sock"
RING = 8192  # records that wait to be sent; when full, the oldest are dropped
BATCH = 96  # records of a datagram at most; that many wake the sender thread
MAX_DATAGRAM = 8192  # bytes
MAX_PENDING = 1024  # collectives that GPUs have not completed; further ones are not timed
MAX_GROUPS = 256  # communicators
MAX_ROWS = 64  # progress rows of a datagram
MAX_STEPS = 128  # step marks that wait to be sent
MAX_WORD = 128  # characters of an environment variable
POLLED = 8  # pending collectives that one call queries
TICK = 1.0  # seconds between two sends
RETRY = 10.0  # seconds until the next attempt where there is no receiver
PATIENCE = 0.5  # seconds that the sender thread waits for a full socket, and that flush() blocks, at most
FAULTS = 8  # failures after which the hook disables itself

REPORTED_VARIABLES = tuple(
    "FABRIC_TIMING_JOB SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_JOB_NAME "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK "
    "JOB_COMPLETION_INDEX JOBSET_NAME OMPI_COMM_WORLD_RANK PMIX_RANK POD_NAME POD_NAMESPACE".split()
)  # the only environment variables that are sent
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
RUNS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT")
JOBS = ("FABRIC_TIMING_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOBSET_NAME")

WATCHED = (
    ("all_reduce", "AllReduce", "tensor"),
    ("all_gather", "AllGather", "tensor"),
    ("all_gather_into_tensor", "AllGather", "input_tensor"),
    ("all_gather_single", "AllGather", "input_tensor"),
    ("reduce_scatter", "ReduceScatter", "output"),
    ("reduce_scatter_tensor", "ReduceScatter", "output"),
    ("reduce_scatter_single", "ReduceScatter", "output"),
    ("broadcast", "Broadcast", "tensor"),
    ("reduce", "Reduce", "tensor"),
    ("all_to_all", "AlltoAll", "input_tensor_list"),
    ("all_to_all_single", "AlltoAll", "input"),
    ("gather", "Gather", "tensor"),
    ("scatter", "Scatter", "tensor"),
    ("send", "Send", "tensor"),
    ("recv", "Recv", "tensor"),
    ("barrier", "Barrier", ""),
    ("batch_isend_irecv", "SendRecv", "p2p_op_list"),
)  # functions of torch.distributed, NCCL's name of the kind, and the parameter whose bytes NCCL counts

CPU = -1

logger = logging.getLogger("fabric_timing")


class _Group:
    """A communicator as this rank sees it, with the number of collectives begun and ended by kind."""

    __slots__ = ("counts", "key", "last", "name", "nodes", "on_gpu", "rank", "ranks", "ref", "sent", "size", "title")

    def __init__(self, ref: Callable[[], Any], name: str, title: str, rank: int, ranks: list[int]) -> None:
        self.ref, self.name, self.title, self.rank, self.ranks = ref, name, _word(title), rank, ranks
        self.size, self.on_gpu, self.key = len(ranks), False, ""
        local = _number(("LOCAL_WORLD_SIZE",), 0)
        self.nodes = len({one // local for one in ranks}) if local > 0 else 0
        self.counts: dict[str, list[int]] = {}
        self.sent: dict[str, tuple[int, int]] = {}
        self.last: Any = None


class _Timing:
    """A collective in progress. On a GPU: its events, and the end event of the previous collective."""

    __slots__ = ("began", "count", "device", "end", "group", "kind", "number", "previous", "size", "start")

    def __init__(self, group: _Group, kind: str, size: int, device: int) -> None:
        self.group, self.kind, self.size, self.device = group, kind, size, device
        self.count = group.counts.get(kind) or group.counts.setdefault(kind, [0, 0])
        self.number = self.count[0]
        self.count[0] += 1
        self.start: Any = None
        self.end: Any = None
        self.previous: Any = None
        self.began = time.monotonic_ns()


class _Inside(threading.local):
    """Whether this thread is in a watched function: collectives that it calls are not timed again."""

    busy = False


class _Unix:
    """Sends to the exporter's Unix socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> bool | None:
        """Send; False where the socket is full, None where there is no receiver."""
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                self._socket.connect(self._path)
            self._socket.send(data)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return None
        return True

    def close(self) -> None:
        """Close; closing twice is harmless."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Mqtt:
    """Sends to a broker with paho-mqtt, whose own thread connects and reconnects."""

    def __init__(self, url: str, paho: Any) -> None:
        parts = urllib.parse.urlsplit(url if "://" in url else f"mqtt://{url}")
        named = (os.environ.get(name, "") for name in JOBS)
        job = _word(next((one for one in named if one and one != "none"), "unknown"))
        slot = hashlib.sha256(job.encode()).hexdigest()[:2]
        names = [urllib.parse.quote(one, safe="") for one in (job, _word(socket.gethostname()))]
        self._topic = "/".join(["fabric/v1/timing", slot, *names])
        version = getattr(paho, "CallbackAPIVersion", None)  # of paho-mqtt 2
        self._client = paho.Client(*([version.VERSION2] if version else []))
        secret = os.environ.get("FABRIC_TIMING_MQTT_PASSWORD_FILE")
        if parts.username:
            password = Path(secret).read_text(encoding="utf-8").strip() if secret else None
            self._client.username_pw_set(urllib.parse.unquote(parts.username), password)
        if parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.max_queued_messages_set(MAX_ROWS)
        self._client.connect_async(parts.hostname or "localhost", parts.port or (1883, 8883)[parts.scheme == "mqtts"])
        self._client.loop_start()
        self._connecting = time.monotonic() + RETRY

    def send(self, data: bytes) -> bool | None:
        """Send; False while connecting or full, None where the broker is not reachable."""
        if self._client.is_connected():
            return bool(self._client.publish(self._topic, data, qos=1).rc == 0)
        return False if time.monotonic() < self._connecting else None


def _word(text: str) -> str:
    """Return a text shortened to MAX_WORD characters, with unprintable ones replaced."""
    return "".join(one if " " <= one <= "~" and one not in '"\\' else "_" for one in text[:MAX_WORD])


def _number(names: Sequence[str], default: int) -> int:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 10), default)


def _measure(value: Any) -> tuple[int, int | None]:
    """Return the bytes of a tensor, or of a list of tensors or P2POps, and the GPU, CPU, or None for other devices."""
    if hasattr(value, "numel"):
        return value.numel() * value.element_size(), _device(value)
    tensors = [getattr(one, "tensor", one) for one in value]
    return sum(one.numel() * one.element_size() for one in tensors), _device(tensors[0])


def _device(tensor: Any) -> int | None:
    if tensor.is_cuda:
        return int(tensor.get_device())
    return CPU if tensor.is_cpu else None


class _Hook:
    """State of the hook in one process."""

    def __init__(self) -> None:
        self.off = os.environ.get("FABRIC_TIMING", "").lower() in {"0", "off", "false", "no"}
        self.torch: Any = None
        self.coalescing: Any = {}
        self.originals: list[tuple[Any, str, Any]] = []
        self.inside = _Inside()
        self.faults = 0
        self.reset()

    def reset(self) -> None:
        """Reset the state, also in a forked process: threads, sockets and events remain with the parent."""
        self.ring: deque[tuple[Any, ...]] = deque(maxlen=RING)
        self.steps: deque[tuple[Any, ...]] = deque(maxlen=MAX_STEPS)
        self.pending: deque[_Timing] = deque()
        self.pool: dict[int, list[Any]] = {}
        self.groups: dict[Any, _Group] = {}
        self.batch: list[tuple[Any, ...]] = []
        self.dropped = self.untimed = self.sent = self.stepped = 0
        self.rank, self.world = _number(RANKS, -1), _number(SIZES, 0)
        self.gpu: dict[str, str] = {}
        self.epoch = os.urandom(8).hex()
        self.nonce: tuple[Any, str] | None = None
        self.transport: Any = None
        self.retry = 0.0
        self.polling, self.wake, self.done = threading.Lock(), threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def fault(self) -> None:
        """Count a failure of the hook itself; after FAULTS failures, disable the hook."""
        self.faults += 1
        logger.debug("failure %d", self.faults, exc_info=True)
        if self.faults >= FAULTS and not self.off:
            self.off = True
            logger.warning("collectives are no longer timed after %d failures", self.faults, exc_info=True)

    # --- In the job's own threads: all of this is overhead of every collective.

    def group_of(self, group: Any) -> _Group | None:
        """Return the state of a communicator: a process group, a name, or None for all ranks."""
        if group is None and self.torch is not None:
            group = self.torch.distributed.group.WORLD  # which is None before there is one
        found = self.groups.get(group if isinstance(group, str) else id(group))
        if found is not None and (found.ref() is group or isinstance(group, str)):
            return found
        return self.add_group(group)

    def add_group(self, group: Any) -> _Group | None:
        """Add a communicator; None where there is no room, or this rank is not a member."""
        if len(self.groups) >= MAX_GROUPS:
            for key, old in list(self.groups.items()):
                if isinstance(old.ref, weakref.ref) and old.ref() is None:
                    self.groups.pop(key, None)
            if len(self.groups) >= MAX_GROUPS:
                return None
        if group is None or isinstance(group, str):
            name, ranks = group or "world", list(range(max(1, self.world)))
            added = _Group(lambda: group, name, name, max(0, self.rank), ranks)
            self.groups[id(group) if group is None else group] = added
            return added
        distributed = self.torch.distributed
        rank = distributed.get_rank(group)
        if rank < 0:
            return None
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        ranks = [int(one) for one in distributed.get_process_group_ranks(group)]
        name = str(getattr(group, "group_name", ""))
        title = str(getattr(group, "group_desc", "undefined"))
        added = _Group(weakref.ref(group), name, name if title == "undefined" else title, rank, ranks)
        added.on_gpu = "nccl" in str(distributed.get_backend(group))
        self.groups[id(group)] = added
        return added

    def begin(self, group: Any, kind: str, size: int, device: int | None) -> _Timing | None:
        """Start timing a collective; None where it is not timed."""
        known = self.group_of(group)
        if known is None:
            self.untimed += 1
            return None
        if self.coalescing:  # the calls are deferred and run together
            device = None
        elif device is not None and device >= 0:
            # A captured collective runs later, in a graph; events must not be queried during capture.
            device = None if self.torch.cuda.is_current_stream_capturing() else device
            if device is not None:
                self.poll()
                device = device if len(self.pending) < MAX_PENDING else None
        timing = _Timing(known, kind, size, CPU if device is None else device)
        if device is None:
            self.abandon(timing)
            return None
        if device >= 0:
            timing.start = self.recorded(device)
        return timing

    def end(self, timing: _Timing) -> None:
        """Stop timing a collective that completed, or whose completion is queued on the current stream."""
        if timing.start is None:
            self.record(timing, (time.monotonic_ns() - timing.began + 500) // 1000, "host")
            return
        timing.end = self.recorded(timing.device)
        timing.previous, timing.group.last = timing.group.last, timing.end
        self.pending.append(timing)

    def end_async(self, timing: _Timing, works: Any) -> None:
        """Stop timing a collective when its Work completes; without a future, it is not timed."""
        try:
            (work,) = works if isinstance(works, list) else (works,)
            future = work.get_future()
        except Exception:  # of any type: there may be no Work at all
            self.abandon(timing)
            return
        future.add_done_callback(functools.partial(self.ended_async, timing))

    def ended_async(self, timing: _Timing, future: Any) -> None:
        """Handle a completion in a thread of torch; on a GPU, its current stream waits for the work."""
        try:
            if timing.start is None:
                now = time.monotonic_ns()
                try:
                    future.value()
                except Exception:  # the collective failed, which torch reports to the job
                    self.abandon(timing)
                else:
                    self.record(timing, (now - timing.began + 500) // 1000, "host")
            else:
                self.end(timing)
        except Exception:
            self.fault()

    def abandon(self, timing: _Timing) -> None:
        """Stop timing a collective without recording it."""
        self.untimed += 1
        timing.count[1] += 1
        if timing.start is not None:
            self.pool.setdefault(timing.device, []).append(timing.start)

    def poll(self) -> None:
        """Record the collectives that GPUs completed.

        Called from the job's own threads only: a query from another thread would invalidate a graph capture.
        """
        pending = self.pending
        if not pending or not self.polling.acquire(blocking=False):
            return
        try:
            for _ in range(POLLED):
                if not pending or not pending[0].end.query():
                    return
                self.record_gpu(pending.popleft())
        finally:
            self.polling.release()

    def record_gpu(self, timing: _Timing) -> None:
        """Record the time of a collective: from when it was reached, or the previous one ended, until it ended."""
        milliseconds = whole = timing.start.elapsed_time(timing.end)
        pool = self.pool[timing.device]
        pool.append(timing.start)
        if timing.previous is not None:
            since = timing.previous.elapsed_time(timing.end)
            milliseconds = min(milliseconds, since) if since > 0 else milliseconds
            pool.append(timing.previous)
        self.record(timing, int(milliseconds * 1000 + 0.5), "gpu", int((whole - milliseconds) * 1000 + 0.5))

    def recorded(self, device: int) -> Any:
        """Return an event that is recorded on the current stream."""
        pool = self.pool.get(device)
        if pool is None:
            pool = self.pool[device] = []
            self.identify_gpu(self.torch.cuda.get_device_properties(device))
        try:
            event = pool.pop()
        except IndexError:
            event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def identify_gpu(self, one: Any) -> None:
        """Store UUID and PCI address of the GPU, as far as torch reports them."""
        if hasattr(one, "uuid"):
            self.gpu["uuid"] = _word(str(one.uuid))
        if hasattr(one, "pci_bus_id"):
            domain, place = getattr(one, "pci_domain_id", 0), getattr(one, "pci_device_id", 0)
            self.gpu["pci"] = f"{domain:04x}:{one.pci_bus_id:02x}:{place:02x}.0"

    def record(self, one: _Timing, microseconds: int, source: str, queued: int = 0) -> None:
        """Add a record to the ring buffer, and start or wake the sender thread.

        `queued` is how long it waited behind the previous one, before `microseconds`: nothing on the host, where
        libraries such as gloo run several at a time, and the time is that since the call.
        """
        ring = self.ring
        self.dropped += len(ring) >= RING
        one.count[1] += 1
        began = one.began // 1000
        ring.append((one.group, one.kind, one.number, one.size, max(1, microseconds), began, source, queued))
        if self.thread is None:
            self.start()
        elif len(ring) == BATCH:
            self.wake.set()

    def mark(self, tokens: int | None, flops: float | None) -> None:
        """Mark the end of a step."""
        self.stepped += 1
        self.steps.append((self.stepped, time.monotonic_ns() // 1000, tokens, flops))
        if self.thread is None:
            self.start()

    def start(self) -> None:
        """Start the sender thread; it sends at once, while torch's store is still available to name communicators."""
        self.thread = threading.Thread(target=self.run, name="fabric_timing", daemon=True)
        self.wake.set()
        self.thread.start()

    # --- In the sender thread.

    def run(self) -> None:
        """Send once per TICK, or when a datagram is full."""
        while not self.off:
            self.wake.wait(TICK)
            self.wake.clear()
            try:
                self.flush()
            except Exception:
                self.fault()
            self.done.set()

    def settle(self) -> None:
        """Wait up to PATIENCE for the thread to send what is queued: torch's store or a full socket may block it."""
        self.poll()
        for _ in range(2):  # the thread may already be sending the first time
            self.done.clear()
            self.wake.set()
            self.done.wait(PATIENCE / 2)

    def flush(self) -> None:
        """Send what is queued; what cannot be sent remains queued."""
        until = time.monotonic() + PATIENCE
        if until - PATIENCE < self.retry:
            return
        if self.transport is None:
            self.transport = _transport()
        rows, steps = self.rows(), [self.steps.popleft() for _ in range(len(self.steps))]
        while self.ring or self.batch or rows or steps:
            while self.ring and len(self.batch) < BATCH:
                self.batch.append(self.ring.popleft())
            data, fitting = self.fitting(rows[:MAX_ROWS], steps)
            while (done := self.transport.send(data)) is False and time.monotonic() < until:
                time.sleep(0.01)
            if not done:
                self.retry = 0.0 if done is False else time.monotonic() + RETRY
                self.steps.extendleft(reversed(steps))
                return
            self.sent += 1
            for group, kind, begun, ended in rows[: fitting[1]]:
                group.sent[kind] = (begun, ended)
            del self.batch[: fitting[0]], rows[: fitting[1]], steps[: fitting[2]]

    def fitting(self, rows: list[tuple[Any, ...]], steps: list[tuple[Any, ...]]) -> tuple[bytes, list[int]]:
        """Return a datagram with as much as fits, and the number of records, rows and steps in it."""
        parts: list[list[tuple[Any, ...]]] = [self.batch, rows, steps]
        counts = [len(part) for part in parts]
        while True:
            data = self.encode(*(part[:count] for part, count in zip(parts, counts)))  # noqa: B905  # of Python 3.10
            if len(data) <= MAX_DATAGRAM or sum(counts) <= 1:
                return data, counts
            most = counts.index(max(counts))
            counts[most] //= 2

    def rows(self) -> list[tuple[Any, ...]]:
        """Return progress rows of communicators that changed or have collectives in progress."""
        return [
            (group, kind, count[0], count[1])
            for group in list(self.groups.values())
            for kind, count in list(group.counts.items())
            if count[0] != count[1] or group.sent.get(kind) != (count[0], count[1])
        ]

    def encode(self, ops: Sequence[Any], rows: Sequence[Any], steps: Sequence[Any]) -> bytes:
        """Encode a datagram."""
        places: dict[_Group, int] = {}
        for one in (*ops, *rows):
            places.setdefault(one[0], len(places))
        values: dict[str, Any] = {
            "v": VERSION,
            "n": self.sent,
            "pid": os.getpid(),
            "host": _word(socket.gethostname()),
            "clock": [time.monotonic_ns() // 1000, time.time_ns() // 1000],
            "env": {name: _word(os.environ[name]) for name in REPORTED_VARIABLES if name in os.environ},
            "gpu": self.gpu,
            "epoch": self.epoch,
            "dropped": self.dropped,
            "untimed": self.untimed,
            "faults": self.faults,
            "groups": [[self.key(one), one.title, one.rank, one.size, one.nodes] for one in places],
            "ops": [[places[one[0]], *one[1:]] for one in ops],
            "counts": [[places[one[0]], *one[1:]] for one in rows],
            "steps": steps,
        }
        if self.rank >= 0:
            values.update(rank=self.rank, world=max(self.world, self.rank + 1))
        return json.dumps(values, separators=(",", ":")).encode()

    def key(self, group: _Group) -> str:
        """Return an identifier of a communicator that is equal on all its ranks, and differs between runs."""
        if not group.key:
            text = f"{self.run_id()}|{group.name}|{group.ranks}"
            group.key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return group.key

    def run_id(self) -> str:
        """Return a value that is equal on all ranks and differs between runs: the first rank stores it with torch."""
        if self.torch is None or not self.torch.distributed.is_initialized():
            return "|".join(os.environ.get(name, "") for name in RUNS)
        world = self.torch.distributed.group.WORLD
        if self.nonce is None or self.nonce[0]() is not world:
            store = self.torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # no public access
            word = store.compare_set("fabric_timing", "", os.urandom(8).hex())
            self.nonce = (weakref.ref(world), word.decode())
        return self.nonce[1]

    # --- Around torch.distributed.

    def watch(self) -> bool:
        """Replace functions of torch.distributed by timed ones."""
        self.torch = importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
        core = importlib.import_module("torch.distributed.distributed_c10d")
        self.coalescing = getattr(getattr(core, "_world", None), "pg_coalesce_state", {})
        for name, kind, sized in WATCHED:
            original = getattr(distributed, name, None)
            if original is None or hasattr(original, "fabric_timing"):
                continue
            try:
                watched = self.watched(original, kind, sized)
            except (TypeError, ValueError) as error:
                logger.warning("%s is not timed: %s", name, error)
                continue
            for module in (distributed, core):
                if getattr(module, name, None) is original:
                    self.originals.append((module, name, original))
                    setattr(module, name, watched)
        return True

    def unwatch(self) -> None:
        """Restore torch's functions, unless something else replaced ours since."""
        for module, name, original in self.originals:
            if getattr(getattr(module, name), "fabric_timing", None) is original:
                setattr(module, name, original)
        self.originals.clear()

    def watched(self, original: Any, kind: str, sized: str) -> Any:
        """Return a function that calls the original and times it."""
        begin, is_async = self.argument_readers(original, kind, sized)
        compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", bool)
        inside = self.inside

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.off or compiling() or inside.busy:  # a compiler must see torch's own function
                return original(*args, **kwargs)
            timing = None
            try:
                timing = begin(args, kwargs)
            except Exception:
                self.fault()
            if timing is None:
                return original(*args, **kwargs)
            inside.busy = True
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self.abandon(timing)
                raise
            finally:
                inside.busy = False
            try:
                if is_async(args, kwargs):
                    self.end_async(timing, result if sized else None)  # the Work of a barrier reports no end
                else:
                    self.end(timing)
            except Exception:
                self.fault()
            return result

        call.fabric_timing = original  # type: ignore[attr-defined]
        return call

    def argument_readers(self, original: Any, kind: str, sized: str) -> tuple[Any, Any]:
        """Return two functions of the call's arguments: one starts timing, one returns whether the call is async."""
        names = list(inspect.signature(original).parameters)
        if sized and sized not in names:
            raise TypeError(f"{original.__name__} has no parameter {sized}")
        size_at, group_at, async_at = (names.index(one) if one in names else 99 for one in (sized, "group", "async_op"))
        batch = kind == "SendRecv"

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Timing | None:
            size, device = 0, CPU
            if sized:
                value = args[size_at] if size_at < len(args) else kwargs[sized]
                size, device = _measure(value)  # type: ignore[assignment]
            if batch:
                return self.begin(value[0].group, kind, size, device)
            return self.begin(args[group_at] if group_at < len(args) else kwargs.get("group"), kind, size, device)

        def is_async(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
            return bool(args[async_at] if async_at < len(args) else kwargs.get("async_op", batch))

        return begin, is_async


def _transport() -> Any:
    """Return the transport that the environment selects."""
    url = os.environ.get("FABRIC_TIMING_MQTT")
    if url:
        try:
            return _Mqtt(url, importlib.import_module("paho.mqtt.client"))
        except Exception as error:
            logger.warning("FABRIC_TIMING_MQTT cannot be used, using the socket: %s", type(error).__name__)
    return _Unix(os.environ.get("FABRIC_TIMING_SOCKET") or SOCKET)


_hook = _Hook()


def _guarded(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function unless the hook is disabled; None where it fails."""
    try:
        return None if _hook.off else function(*args)
    except Exception:
        _hook.fault()
        return None


class collective:  # noqa: N801  # it is used like a function
    """Time the body of a `with` statement as one collective.

    Args:
        kind: NCCL's name: AllReduce, AllGather, ReduceScatter, Broadcast …
        group: Process group of torch, or a name that is equal on all ranks of the communicator; by default all ranks.
        size: Bytes as NCCL counts them: what one rank passes in; for ReduceScatter what one rank receives.
        rank: Rank in the communicator, if `group` is a name; by default the rank in the job.
        ranks: Number of ranks of the communicator, if `group` is a name; by default that of the job.
        gpu: Whether the work is on the current CUDA stream; by default according to the backend of the group.
    """

    __slots__ = ("_arguments", "_timing")

    def __init__(
        self,
        kind: str,
        group: Any = None,
        size: int = 0,
        *,
        rank: int | None = None,
        ranks: int | None = None,
        gpu: bool | None = None,
    ) -> None:
        self._arguments, self._timing = (kind, group, size, rank, ranks, gpu), None

    def __enter__(self) -> None:
        """Start timing."""
        self._timing = _guarded(self._begin, *self._arguments)

    @staticmethod
    def _begin(kind: str, group: Any, size: int, rank: Any, ranks: Any, gpu: Any) -> _Timing | None:
        if _hook.torch is None and "torch.distributed.distributed_c10d" in sys.modules:  # absent in some builds
            _hook.torch = sys.modules["torch"]
        known = _hook.group_of(group)
        if known is not None and not known.counts and (rank is not None or ranks is not None):
            known.rank, known.size, known.nodes = int(rank or 0), int(ranks or 1), 0
            known.ranks = [known.size]
        on_gpu = known is not None and known.on_gpu if gpu is None else gpu
        device = _hook.torch.cuda.current_device() if on_gpu and _hook.torch is not None else CPU
        return _hook.begin(group, str(kind)[:32], int(size), device)

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop timing; what failed is not recorded."""
        if self._timing is not None:
            _guarded(_hook.end if kind is None else _hook.abandon, self._timing)
            self._timing = None


def watch() -> None:
    """Time all collectives that the job calls through torch.distributed; calling it once is enough."""
    if not _guarded(_hook.watch) and not _hook.off:
        logger.warning("torch.distributed is not available: no collectives are timed")


def unwatch() -> None:
    """Stop timing collectives."""
    _guarded(_hook.unwatch)


def step(tokens: int | None = None, flops: float | None = None) -> None:
    """Mark the end of a training step, with its tokens and floating-point operations over all ranks."""
    _guarded(_hook.mark, tokens, flops)


def flush() -> None:
    """Send what is queued, within PATIENCE seconds; also done at the end of the job."""
    if _hook.thread is not None:
        _guarded(_hook.settle)


atexit.register(flush)
os.register_at_fork(after_in_child=_hook.reset)
