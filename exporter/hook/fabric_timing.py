"""Time the collectives of a training job and tell them to fabric-exporter on this node: one line in the job.

    import fabric_timing
    fabric_timing.watch()           # after `import torch`, on every rank, before the first collective

or, around communication that torch.distributed does not do, `with fabric_timing.collective("AllReduce", size=bytes):`.
This file needs nothing but Python 3.9; copy it anywhere. What it promises to the job:

* It never waits: no synchronisation, and a socket that does not block, in a thread of its own. Collectives on a GPU are
  timed by CUDA events, which later calls look at; those on the CPU by the clock of the host.
* It never raises: what fails in it is counted, and after FAULTS such failures it switches itself off and says so once.
* It is bounded: a ring of RING records in memory; what does not fit, or is not heard, is counted as dropped.

Environment: FABRIC_TIMING=0 switches it off, FABRIC_TIMING_SOCKET is where the exporter listens, FABRIC_TIMING_JOB is
the job's name. FABRIC_TIMING_MQTT=[mqtts://][user@]host[:port] sends to a broker instead, where paho-mqtt is installed,
with the password in the file FABRIC_TIMING_MQTT_PASSWORD_FILE: for jobs on hosts without an exporter.
"""

# The form of what is sent, and what its numbers mean, is in exporter/nccl/datagram.py of fabric-exporter.
# ruff: noqa: ANN401, BLE001, LOG014, SIM905  # torch has no types here, and no failure of any kind may reach the job

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
RING = 8192  # records that wait to be sent; of more, the oldest are dropped
BATCH = 96  # records of a datagram at most; that many wake the thread that sends
MAX_DATAGRAM = 8192  # bytes
MAX_PENDING = 1024  # collectives that GPUs are not done with; more are not timed
MAX_GROUPS = 256  # communicators
MAX_ROWS = 64  # rows of a datagram that say how far each communicator is
MAX_STEPS = 128  # marks of steps that wait to be sent
MAX_WORD = 128  # characters of a fact of the environment
POLLED = 8  # collectives whose end is looked for at one call
TICK = 1.0  # seconds between two sendings
RETRY = 10.0  # seconds until it is tried again where nobody listens
PATIENCE = 0.5  # seconds that the thread waits for a full socket, and that the end of the job may take, at most
FAULTS = 8  # failures after which it switches itself off

FACTS = (
    "FABRIC_TIMING_JOB SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_JOB_NAME "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK "
    "JOB_COMPLETION_INDEX JOBSET_NAME OMPI_COMM_WORLD_RANK PMIX_RANK POD_NAME POD_NAMESPACE"
).split()  # all that is told of the environment
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
)  # functions of torch.distributed, the kind as NCCL names it, and the parameter whose bytes NCCL counts

CPU = -1

logger = logging.getLogger("fabric_timing")


class _Group:
    """A communicator as this rank sees it, with its collectives that were begun and that are over, by kind."""

    __slots__ = ("counts", "key", "last", "name", "nodes", "on_gpu", "rank", "ranks", "ref", "size", "title", "told")

    def __init__(self, ref: Callable[[], Any], name: str, title: str, rank: int, ranks: list[int]) -> None:
        self.ref, self.name, self.title, self.rank, self.ranks = ref, name, _word(title), rank, ranks
        self.size, self.on_gpu, self.key = len(ranks), False, ""
        local = _number(("LOCAL_WORLD_SIZE",), 0)
        self.nodes = len({one // local for one in ranks}) if local > 0 else 0
        self.counts: dict[str, list[int]] = {}
        self.told: dict[str, tuple[int, int]] = {}
        self.last: Any = None


class _Timing:
    """A collective under way. On a GPU: its events, and the one where the collective before it ended."""

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
    """Whether this thread is in a function that is watched: what that asks of others is not timed once more."""

    busy = False


class _Unix:
    """Sends to the exporter's socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> bool | None:
        """Send; False where there is no room just now, None where nobody listens."""
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
        """Close; closing twice does no harm."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Mqtt:
    """Sends to a broker by paho-mqtt, whose own thread connects, and again when the broker was away."""

    def __init__(self, url: str, paho: Any) -> None:
        parts = urllib.parse.urlsplit(url if "://" in url else f"mqtt://{url}")
        said = (os.environ.get(name, "") for name in JOBS)
        job = _word(next((one for one in said if one and one != "none"), "unknown"))
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
        """Send; False while it connects or is full, None where the broker is away."""
        if self._client.is_connected():
            return bool(self._client.publish(self._topic, data, qos=1).rc == 0)
        return False if time.monotonic() < self._connecting else None


def _word(text: str) -> str:
    """Make a text that is short and plain."""
    return "".join(one if " " <= one <= "~" and one not in '"\\' else "_" for one in text[:MAX_WORD])


def _number(names: Sequence[str], default: int) -> int:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 10), default)


def _measure(value: Any) -> tuple[int, int | None]:
    """Give the bytes of a tensor, or of a list of them or of P2POps, and its GPU, CPU, or None for another device."""
    if hasattr(value, "numel"):
        return value.numel() * value.element_size(), _device(value)
    tensors = [getattr(one, "tensor", one) for one in value]
    return sum(one.numel() * one.element_size() for one in tensors), _device(tensors[0])


def _device(tensor: Any) -> int | None:
    if tensor.is_cuda:
        return int(tensor.get_device())
    return CPU if tensor.is_cpu else None


class _Hook:
    """All there is of it in a process."""

    def __init__(self) -> None:
        self.off = os.environ.get("FABRIC_TIMING", "").lower() in {"0", "off", "false", "no"}
        self.torch: Any = None
        self.coalescing: Any = {}
        self.originals: list[tuple[Any, str, Any]] = []
        self.inside = _Inside()
        self.faults = 0
        self.fresh()

    def fresh(self) -> None:
        """Begin with nothing, as in a process that was forked: threads, sockets and events stay with its parent."""
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
        """Count a failure of this file's own; of too many, give up for good."""
        self.faults += 1
        logger.debug("failure %d", self.faults, exc_info=True)
        if self.faults >= FAULTS and not self.off:
            self.off = True
            logger.warning("collectives are timed no more, after %d failures", self.faults, exc_info=True)

    # --- in the job's own threads: all of this costs every collective

    def known(self, group: Any) -> _Group | None:
        """Give what is known of a communicator: a process group, a name, or None for all ranks."""
        if group is None and self.torch is not None:
            group = self.torch.distributed.group.WORLD  # which is None before there is one
        found = self.groups.get(group if isinstance(group, str) else id(group))
        if found is not None and (found.ref() is group or isinstance(group, str)):
            return found
        return self.meet(group)

    def meet(self, group: Any) -> _Group | None:
        """Take up a communicator; None where there is no room, or this rank is not in it."""
        if len(self.groups) >= MAX_GROUPS:
            for key, old in list(self.groups.items()):
                if isinstance(old.ref, weakref.ref) and old.ref() is None:
                    self.groups.pop(key, None)
            if len(self.groups) >= MAX_GROUPS:
                return None
        if group is None or isinstance(group, str):
            name, ranks = group or "world", list(range(max(1, self.world)))
            met = _Group(lambda: group, name, name, max(0, self.rank), ranks)
            self.groups[id(group) if group is None else group] = met
            return met
        distributed = self.torch.distributed
        rank = distributed.get_rank(group)
        if rank < 0:
            return None
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        ranks = [int(one) for one in distributed.get_process_group_ranks(group)]
        name = str(getattr(group, "group_name", ""))
        title = str(getattr(group, "group_desc", "undefined"))
        met = _Group(weakref.ref(group), name, name if title == "undefined" else title, rank, ranks)
        met.on_gpu = "nccl" in str(distributed.get_backend(group))
        self.groups[id(group)] = met
        return met

    def begin(self, group: Any, kind: str, size: int, device: int | None) -> _Timing | None:
        """Note that a collective begins; None where it is not timed."""
        known = self.known(group)
        if known is None:
            self.untimed += 1
            return None
        if self.coalescing:  # what is asked for now is done later, together
            device = None
        elif device is not None and device >= 0:
            # What is captured is done by a graph later on, and nothing may be asked meanwhile.
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
        """Note that a collective ended, or that all that ends it is queued on the current stream."""
        if timing.start is None:
            self.note(timing, (time.monotonic_ns() - timing.began + 500) // 1000, "host")
            return
        timing.end = self.recorded(timing.device)
        timing.previous, timing.group.last = timing.group.last, timing.end
        self.pending.append(timing)

    def end_later(self, timing: _Timing, works: Any) -> None:
        """Have the end of a collective noted when it comes; works that cannot tell it are not timed."""
        try:
            (work,) = works if isinstance(works, list) else (works,)
            future = work.get_future()
        except Exception:  # of any kind, as there may be no work at all
            self.abandon(timing)
            return
        future.add_done_callback(functools.partial(self.ended_later, timing))

    def ended_later(self, timing: _Timing, future: Any) -> None:
        """Take an end in a thread of torch's; on a GPU, with a current stream that waits for the work."""
        try:
            if timing.start is None:
                now = time.monotonic_ns()
                try:
                    future.value()
                except Exception:  # the collective failed, which the job hears of
                    self.abandon(timing)
                else:
                    self.note(timing, (now - timing.began + 500) // 1000, "host")
            else:
                self.end(timing)
        except Exception:
            self.fault()

    def abandon(self, timing: _Timing) -> None:
        """Give up timing a collective."""
        self.untimed += 1
        timing.count[1] += 1
        if timing.start is not None:
            self.pool.setdefault(timing.device, []).append(timing.start)

    def poll(self) -> None:
        """Take the times of collectives that GPUs are done with.

        Only the job's own threads ask: from another one, asking would break a graph that is being captured.
        """
        pending = self.pending
        if not pending or not self.polling.acquire(blocking=False):
            return
        try:
            for _ in range(POLLED):
                if not pending or not pending[0].end.query():
                    return
                self.take(pending.popleft())
        finally:
            self.polling.release()

    def take(self, timing: _Timing) -> None:
        """Note the time of a collective: from when it was reached, or the one before it ended, until it ended."""
        milliseconds = timing.start.elapsed_time(timing.end)
        pool = self.pool[timing.device]
        pool.append(timing.start)
        if timing.previous is not None:
            since = timing.previous.elapsed_time(timing.end)
            milliseconds = min(milliseconds, since) if since > 0 else milliseconds
            pool.append(timing.previous)
        self.note(timing, int(milliseconds * 1000 + 0.5), "gpu")

    def recorded(self, device: int) -> Any:
        """Give an event that is recorded on the current stream."""
        pool = self.pool.get(device)
        if pool is None:
            pool = self.pool[device] = []
            self.name_gpu(self.torch.cuda.get_device_properties(device))
        try:
            event = pool.pop()
        except IndexError:
            event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def name_gpu(self, one: Any) -> None:
        """Keep what torch tells of the GPU."""
        if hasattr(one, "uuid"):
            self.gpu["uuid"] = _word(str(one.uuid))
        if hasattr(one, "pci_bus_id"):
            domain, place = getattr(one, "pci_domain_id", 0), getattr(one, "pci_device_id", 0)
            self.gpu["pci"] = f"{domain:04x}:{one.pci_bus_id:02x}:{place:02x}.0"

    def note(self, one: _Timing, microseconds: int, source: str) -> None:
        """Put a record into the ring, and see that somebody empties it."""
        ring = self.ring
        self.dropped += len(ring) >= RING
        one.count[1] += 1
        ring.append((one.group, one.kind, one.number, one.size, max(1, microseconds), one.began // 1000, source))
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
        """Start the thread that sends; it looks at once, while all that names the communicators is there."""
        self.thread = threading.Thread(target=self.run, name="fabric_timing", daemon=True)
        self.wake.set()
        self.thread.start()

    # --- in the thread that sends

    def run(self) -> None:
        """Send each second, or when a datagram is full."""
        while not self.off:
            self.wake.wait(TICK)
            self.wake.clear()
            try:
                self.flush()
            except Exception:
                self.fault()
            self.done.set()

    def settle(self) -> None:
        """Have the thread send what waits, and wait a little for it: torch's store or a full socket may hold it up."""
        self.poll()
        for _ in range(2):  # the first time it may be about something already
            self.done.clear()
            self.wake.set()
            self.done.wait(PATIENCE / 2)

    def flush(self) -> None:
        """Send what waits; what finds no room, or nobody who listens, waits on."""
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
                group.told[kind] = (begun, ended)
            del self.batch[: fitting[0]], rows[: fitting[1]], steps[: fitting[2]]

    def fitting(self, rows: list[tuple[Any, ...]], steps: list[tuple[Any, ...]]) -> tuple[bytes, list[int]]:
        """Give a datagram of as much as fits into one, and how many records, rows and steps those are."""
        parts: list[list[tuple[Any, ...]]] = [self.batch, rows, steps]
        counts = [len(part) for part in parts]
        while True:
            data = self.encode(*(part[:count] for part, count in zip(parts, counts)))  # noqa: B905  # of Python 3.10
            if len(data) <= MAX_DATAGRAM or sum(counts) <= 1:
                return data, counts
            most = counts.index(max(counts))
            counts[most] //= 2

    def rows(self) -> list[tuple[Any, ...]]:
        """Give how far each communicator is, where that changed or something is under way."""
        return [
            (group, kind, count[0], count[1])
            for group in list(self.groups.values())
            for kind, count in list(group.counts.items())
            if count[0] != count[1] or group.told.get(kind) != (count[0], count[1])
        ]

    def encode(self, ops: Sequence[Any], rows: Sequence[Any], steps: Sequence[Any]) -> bytes:
        """Make a datagram."""
        places: dict[_Group, int] = {}
        for one in (*ops, *rows):
            places.setdefault(one[0], len(places))
        told: dict[str, Any] = {
            "v": VERSION,
            "n": self.sent,
            "pid": os.getpid(),
            "host": _word(socket.gethostname()),
            "clock": [time.monotonic_ns() // 1000, time.time_ns() // 1000],
            "env": {name: _word(os.environ[name]) for name in FACTS if name in os.environ},
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
            told.update(rank=self.rank, world=max(self.world, self.rank + 1))
        return json.dumps(told, separators=(",", ":")).encode()

    def key(self, group: _Group) -> str:
        """Give the name of a communicator that all its ranks give it, and that no other run gives one of its own."""
        if not group.key:
            text = f"{self.agreed()}|{group.name}|{group.ranks}"
            group.key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return group.key

    def agreed(self) -> str:
        """Give a word that is the same on all ranks and new in each run: the first to ask torch's store sets it."""
        if self.torch is None or not self.torch.distributed.is_initialized():
            return "|".join(os.environ.get(name, "") for name in RUNS)
        world = self.torch.distributed.group.WORLD
        if self.nonce is None or self.nonce[0]() is not world:
            store = self.torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # no other way to it
            word = store.compare_set("fabric_timing", "", os.urandom(8).hex())
            self.nonce = (weakref.ref(world), word.decode())
        return self.nonce[1]

    # --- around torch.distributed

    def watch(self) -> bool:
        """Put functions that time in the place of torch's."""
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
        """Put torch's functions back, where nobody else replaced ours since."""
        for module, name, original in self.originals:
            if getattr(getattr(module, name), "fabric_timing", None) is original:
                setattr(module, name, original)
        self.originals.clear()

    def watched(self, original: Any, kind: str, sized: str) -> Any:
        """Give a function that does what one of torch's does, and times it."""
        begin, later = self.reading(original, kind, sized)
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
                if later(args, kwargs):
                    self.end_later(timing, result if sized else None)  # an asynchronous barrier tells no end
                else:
                    self.end(timing)
            except Exception:
                self.fault()
            return result

        call.fabric_timing = original  # type: ignore[attr-defined]
        return call

    def reading(self, original: Any, kind: str, sized: str) -> tuple[Any, Any]:
        """Give functions that read the arguments of one of torch's: one that begins, one that tells who waits."""
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

        def later(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
            return bool(args[async_at] if async_at < len(args) else kwargs.get("async_op", batch))

        return begin, later


def _transport() -> Any:
    """Give where records go to."""
    url = os.environ.get("FABRIC_TIMING_MQTT")
    if url:
        try:
            return _Mqtt(url, importlib.import_module("paho.mqtt.client"))
        except Exception as error:
            logger.warning("FABRIC_TIMING_MQTT cannot be used, the socket is: %s", type(error).__name__)
    return _Unix(os.environ.get("FABRIC_TIMING_SOCKET") or SOCKET)


_hook = _Hook()


def _guarded(function: Callable[..., Any], *args: Any) -> Any:
    """Do something of this file's own, unless it is switched off; None where it fails."""
    try:
        return None if _hook.off else function(*args)
    except Exception:
        _hook.fault()
        return None


class collective:  # noqa: N801  # it is used as a function
    """Time what is done inside a `with` as one collective.

    Args:
        kind: NCCL's name: AllReduce, AllGather, ReduceScatter, Broadcast …
        group: The process group of torch, or a name that all ranks of the communicator give it; else all ranks.
        size: Bytes, as NCCL counts them: what one rank hands in; of a ReduceScatter, what one rank gets.
        rank: Rank in the communicator, where `group` is a name; else that in the job.
        ranks: Ranks of the communicator, where `group` is a name; else those of the job.
        gpu: Whether the work is on the current CUDA stream; else that is told by the backend of the group.
    """

    __slots__ = ("_timing", "_wanted")

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
        self._wanted, self._timing = (kind, group, size, rank, ranks, gpu), None

    def __enter__(self) -> None:
        """Begin."""
        self._timing = _guarded(self._begin, *self._wanted)

    @staticmethod
    def _begin(kind: str, group: Any, size: int, rank: Any, ranks: Any, gpu: Any) -> _Timing | None:
        if _hook.torch is None and "torch.distributed.distributed_c10d" in sys.modules:  # which some builds lack
            _hook.torch = sys.modules["torch"]
        known = _hook.known(group)
        if known is not None and not known.counts and (rank is not None or ranks is not None):
            known.rank, known.size, known.nodes = int(rank or 0), int(ranks or 1), 0
            known.ranks = [known.size]
        on_gpu = known is not None and known.on_gpu if gpu is None else gpu
        device = _hook.torch.cuda.current_device() if on_gpu and _hook.torch is not None else CPU
        return _hook.begin(group, str(kind)[:32], int(size), device)

    def __exit__(self, kind: object, *_: object) -> None:
        """End; what failed is not timed."""
        if self._timing is not None:
            _guarded(_hook.end if kind is None else _hook.abandon, self._timing)
            self._timing = None


def watch() -> None:
    """Time all collectives that the job does by functions of torch.distributed; once is enough."""
    if not _guarded(_hook.watch) and not _hook.off:
        logger.warning("torch.distributed is not there: no collectives are timed")


def unwatch() -> None:
    """Time them no more."""
    _guarded(_hook.unwatch)


def step(tokens: int | None = None, flops: float | None = None) -> None:
    """Mark the end of a step of the training, with its tokens and floating-point operations on all ranks together."""
    _guarded(_hook.mark, tokens, flops)


def flush() -> None:
    """Send what waits, in PATIENCE seconds at most; the end of the job does it, too."""
    if _hook.thread is not None:
        _guarded(_hook.settle)


atexit.register(flush)
os.register_at_fork(after_in_child=_hook.fresh)
