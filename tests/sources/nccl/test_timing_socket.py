"""The timing socket: identification of senders, rejection of datagrams, and bounds."""

import array
import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux.cgroup import Owner, owner_of
from exporter.nccl.datagram import MAX_DATAGRAM, parse_datagram
from exporter.nccl.decoding import FormatError
from exporter.sources.nccl import timing_socket
from exporter.sources.nccl.identity import job_of
from exporter.sources.nccl.timing_socket import MAX_SENDERS, SENDER_BURST, TimingSocket

ID = "0123456789abcdef" * 4
POD = "1b2c3d4e-0000-4111-8222-33344455aabb"
SLICE = "1b2c3d4e_0000_4111_8222_33344455aabb"
STATIC = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def message(**changes):
    """Return the values of a datagram; `...` removes a key."""
    received = {
        "v": 1,
        "n": 0,
        "pid": 17,
        "host": "node1",
        "clock": [50_000_000, 1_790_000_000_000_000],
        "env": {"SLURM_JOB_ID": "123", "RANK": "3"},
        "gpu": {"uuid": "1d6f", "pci": "0000:c8:00.0"},
        "dropped": 2,
        "untimed": 1,
        "faults": 0,
        "rank": 3,
        "world": 16,
        "groups": [["00ff00ff00ff00ff", "default_pg", 3, 16, 2], ["a0a0a0a0a0a0a0a0", "tp", 1, 8, 1]],
        "ops": [[1, "AllReduce", 41, 1048576, 350, 49_000_000, "gpu"], [0, "Barrier", 0, 0, 90, 49_500_000, "host"]],
        "counts": [[1, "AllReduce", 43, 42]],
        "steps": [[7, 49_900_000, 4096, None]],
    }
    return {key: value for key, value in {**received, **changes}.items() if value is not ...}


def encoded(**changes):
    return json.dumps(message(**changes)).encode()


# --- datagrams


def test_all_fields_of_a_datagram_are_parsed():
    received = parse_datagram(encoded())
    assert (received.number, received.pid, received.host, received.rank, received.world) == (0, 17, "node1", 3, 16)
    assert (received.dropped, received.untimed, received.faults) == (2, 1, 0)
    assert received.gpu.pci == "0000:c8:00.0"
    (first, second) = received.operations
    assert received.groups[first.communicator].id == "a0a0a0a0a0a0a0a0"
    assert (first.kind, first.sequence, first.message_bytes, first.microseconds, first.timing) == (
        "AllReduce",
        41,
        1048576,
        350,
        "gpu",
    )
    assert received.age(first) == 1.0
    assert (second.kind, received.age(second)) == ("Barrier", 0.5)
    assert (received.counts[0].begun, received.counts[0].ended) == (43, 42)
    assert (received.steps[0].tokens, received.steps[0].flops) == (4096, None)


def test_unknown_keys_are_ignored_and_optional_keys_may_be_absent():
    received = parse_datagram(encoded(news={"a": 1}, rank=..., world=..., gpu=..., steps=..., counts=...))
    assert (received.rank, received.world, received.gpu.uuid, received.steps) == (None, None, "", ())


OPERATION = [0, "AllReduce", 1, 8, 5, 1, "gpu"]

WRONG = {
    "a pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "malformed"),
    "cut off": (encoded()[:-1], "malformed"),
    "no UTF-8": (encoded().replace(b"node1", b"no\xff\xfe1"), "malformed"),
    "deep": (b'{"x":' + b"[" * 8000, "malformed"),
    "nothing": (b"", "malformed"),
    "a list": (b"[1]", "invalid"),
    "too long": (encoded(more="x" * MAX_DATAGRAM), "too_large"),
    "of a later form": (encoded(v=2), "unsupported_version"),
    "of a form that has other types": (encoded(v=2, ops={"a": 1}), "unsupported_version"),
    "without a clock": (encoded(clock=...), "invalid"),
    "NaN": (encoded(steps=[[1, 2, None, float("nan")]]), "malformed"),
    "more operations per second than there is": (encoded(steps=[[1, 2, None, 1e300]]), "invalid"),
    "a communicator that is not there": (encoded(groups=[]), "invalid"),
    "progress of one that is not there": (encoded(ops=[], counts=[[2, "AllReduce", 1, 1]]), "invalid"),
    "a rank beyond its communicator": (encoded(groups=[["00ff00ff00ff00ff", "", 16, 16, 1]] * 2), "invalid"),
    "a rank beyond the job": (encoded(rank=16), "invalid"),
    "no time": (encoded(ops=[[0, "AllReduce", 1, 8, 0, 1, "gpu"]]), "invalid"),
    "a negative time": (encoded(ops=[[0, "AllReduce", 1, 8, -5, 1, "gpu"]]), "invalid"),
    "a time that is a text": (encoded(ops=[[0, "AllReduce", 1, 8, "5", 1, "gpu"]]), "invalid"),
    "a time that is true": (encoded(ops=[[0, "AllReduce", 1, 8, True, 1, "gpu"]]), "invalid"),
    "a number without end": (encoded(ops=[[0, "AllReduce", 10**40, 8, 5, 1, "gpu"]]), "invalid"),
    "another clock": (encoded(ops=[[0, "AllReduce", 1, 8, 5, 1, "moon"]]), "invalid"),
    "a kind that breaks labels": (encoded(ops=[[0, 'A"} 1\n', 1, 8, 5, 1, "gpu"]]), "invalid"),
    "a kind with a line end": (encoded(ops=[[0, "AllReduce\n", 1, 8, 5, 1, "gpu"]]), "invalid"),
    "a host with a line end": (encoded(host="a\nb"), "invalid"),
    "a job with a NUL": (encoded(env={"SLURM_JOB_ID": "1\0"}), "invalid"),
    "a job that is a number": (encoded(env={"SLURM_JOB_ID": 1}), "invalid"),
    "an environment without end": (encoded(env={"A" * n: "" for n in range(1, 35)}), "invalid"),
    "a communicator's name of another form": (encoded(groups=[["../etc/passwd", "", 0, 1, 1]] * 2), "invalid"),
    "operations without end": (encoded(groups=[["00ff00ff00ff00ff", "", 0, 1, 1]], ops=[[0]] * 600), "invalid"),
}


@pytest.mark.parametrize(("data", "reason"), WRONG.values(), ids=WRONG)
def test_invalid_datagrams_are_rejected(data, reason):
    with pytest.raises(FormatError) as refused:
        parse_datagram(data)
    assert refused.value.reason == reason


@given(
    st.binary(max_size=300) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode)
)
def test_random_bytes_raise_the_declared_error(data):
    with pytest.raises(FormatError):
        parse_datagram(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(OPERATION),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(sorted(message())), JSON)
def test_random_values_raise_the_declared_error_only(key, value):
    with suppress(FormatError):
        parse_datagram(json.dumps(message(**{key: value})).encode())


# --- owners

PATHS = {
    "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_3": Owner("123", "0"),
    "0::/system.slice/node7_slurmstepd.scope/job_9/step_batch/user/task_special": Owner("9", "batch"),
    "0::/../../system.slice/slurmstepd.scope/job_123/step_extern": Owner("123", "extern"),
    "5:memory:/slurm/uid_1000/job_77/step_2/task_0\n0::/system.slice/slurmd.service": Owner("77", "2"),
    "4:cpuset:/slurm_node3/uid_0/job_77": Owner("77"),
    f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope": Owner(
        pod=POD, container=ID
    ),
    f"0::/kubepods.slice/kubepods-pod{SLICE}.slice/crio-{ID}.scope": Owner(pod=POD, container=ID),
    f"0::/../../kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope": Owner(pod=POD, container=ID),
    f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope": Owner(
        pod=POD, container=ID
    ),
    f"11:cpu:/kubepods/burstable/pod{POD}/{ID}": Owner(pod=POD, container=ID),
    f"11:cpu:/kubepods/pod{STATIC}/{ID}": Owner(pod=STATIC, container=ID),
    f"3:pids:/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:{ID}": Owner(
        pod=POD, container=ID
    ),
    f"1:name=systemd:/docker/{ID}": Owner(container=ID),
    f"0::/system.slice/docker-{ID}.scope": Owner(container=ID),
    f"0::/machine.slice/libpod-{ID}.scope/container": Owner(container=ID),
    "0::/system.slice/ssh.service": Owner(),
    "0::/": Owner(),
    "": Owner(),
    "\0garbage\n:::\n0::": Owner(),
}


@pytest.mark.parametrize(("text", "owner"), PATHS.items())
def test_owner_is_read_from_the_control_group(text, owner):
    assert owner_of(text + "\n") == owner


@pytest.mark.parametrize(
    ("text", "owner"),
    {
        # Groups that a user, or root in a container, can create with any name.
        "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_123/step_0": Owner(),
        "0::/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_123": Owner(),
        f"0::/../user.slice/user-1000.slice/kubepods/pod{POD}/{ID}": Owner(),
        f"0::/system.slice/docker-{ID}.scope/kubepods/pod{POD}/{'f' * 64}": Owner(container=ID),
        f"0::/system.slice/docker-{ID}.scope/system.slice/slurmstepd.scope/job_123/step_0": Owner(container=ID),
        f"0::/kubepods/pod{POD}/{ID}/slurm/uid_0/job_5": Owner(pod=POD, container=ID),
        f"0::/kubepods/pod{POD}/{ID}/kubepods/pod{STATIC}/{'f' * 64}": Owner(pod=POD, container=ID),
        "0::/system.slice/slurmstepd.scope/job_12x/step_0": Owner(),
    }.items(),
)
def test_control_groups_that_users_can_create_are_ignored(text, owner):
    assert owner_of(text) == owner


@given(st.text())
def test_any_control_group_text_is_parsed(text):
    assert isinstance(owner_of(text), Owner)


def test_job_name_precedence():
    env = {"FABRIC_TIMING_JOB": "llama", "SLURM_JOB_ID": "5", "TORCHELASTIC_RUN_ID": "none"}
    assert job_of(env, Owner(pod=POD)) == "llama"
    assert job_of({"TORCHELASTIC_RUN_ID": "none"}, Owner(pod=POD)) == POD
    assert job_of({"TORCHELASTIC_RUN_ID": "none"}, Owner()) == "unknown"


# --- the socket


@pytest.fixture
async def opened(tmp_path):
    """An open socket, and a sender connected to it; procfs is a folder that the test can write to."""
    made = TimingSocket(str(tmp_path / "run" / "timing.sock"), tmp_path / "proc")
    await made.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(tmp_path / "run" / "timing.sock"))
        yield made, sender
    await made.close()


async def take_until(made, count):
    """Wait for a number of datagrams, rejected ones included; return the accepted ones."""
    found = []
    while sum(made.counts.values()) < count:
        await asyncio.sleep(0.005)
        found += await made.take()
    return found


def put_cgroup(tmp_path, text, pid=None):
    folder = tmp_path / "proc" / str(os.getpid() if pid is None else pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(text)


async def test_sender_is_identified_by_the_kernel(opened):
    made, sender = opened
    sender.send(encoded(pid=1))
    (one,) = await take_until(made, 1)
    assert one.sender == (os.getpid(), os.getuid(), Owner())
    assert one.job == "123"
    assert one.datagram.rank == 3
    assert one.at <= monotonic()
    assert made.counts["accepted"] == 1
    assert made.senders == 1


async def test_socket_is_writable_for_all_and_its_folder_created(opened, tmp_path):
    assert stat.S_IMODE((tmp_path / "run" / "timing.sock").stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


async def test_job_of_the_control_group_takes_precedence(opened, tmp_path):
    made, sender = opened
    put_cgroup(tmp_path, "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n")
    sender.send(encoded())
    sender.send(encoded(env={"FABRIC_TIMING_JOB": "124"}))
    assert [one.job for one in await take_until(made, 2)] == ["123", "123"]


async def test_job_name_of_another_job_is_rejected(opened, tmp_path):
    made, sender = opened
    put_cgroup(tmp_path, "0::/system.slice/slurmstepd.scope/job_124/step_0/user/task_0\n")
    sender.send(encoded())
    assert await take_until(made, 1) == []
    assert made.counts["job_mismatch"] == 1


async def test_job_of_another_user_is_rejected(opened, tmp_path):
    made, _ = opened
    put_cgroup(tmp_path, "0::/system.slice/slurmstepd.scope/job_123/step_0\n", pid=70)
    put_cgroup(tmp_path, "0::/system.slice/cron.service\n", pid=71)
    for pid, uid in ((70, 1000), (71, 1001), (71, 1000)):
        assert made._enqueue(encoded(), credentials(pid, uid), monotonic()) == ""
    assert [(one.sender.pid, one.sender.uid) for one in await made.take()] == [(70, 1000), (71, 1000)]
    assert made.counts["job_mismatch"] == 1


async def test_owner_is_read_again_after_the_cache_expires(opened, tmp_path, stopped_clock):
    made, _ = opened
    clock = stopped_clock(timing_socket)
    jobs = []
    for job in ("123", "124", "124"):
        put_cgroup(tmp_path, f"0::/system.slice/slurmstepd.scope/job_{job}/step_0\n", pid=70)
        made._enqueue(encoded(env={}), credentials(70, 1000), clock.now)
        jobs += [one.job for one in await made.take()]
        clock.now += 6.0
    assert jobs == ["123", "123", "124"]


async def test_invalid_datagrams_are_counted_and_valid_ones_returned(opened):
    made, sender = opened
    for data in (b"\x80\x04.", encoded(v=3), encoded(rank=-1), b" " * (MAX_DATAGRAM + 100), encoded()):
        sender.send(data)
    assert len(await take_until(made, 5)) == 1
    counted = {name: count for name, count in made.counts.items() if count}
    assert counted == {"malformed": 1, "unsupported_version": 1, "invalid": 1, "too_large": 1, "accepted": 1}


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_passed_file_descriptors_are_closed(opened):
    made, sender = opened
    before = descriptors()
    rights = array.array("i", [0] * 200)
    for _ in range(3):
        sender.sendmsg([encoded()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    assert len(await take_until(made, 3)) == 3
    assert descriptors() == before


def credentials(pid, uid):
    return [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, array.array("i", [pid, uid, 0]).tobytes())]


async def test_senders_are_rate_limited_individually(opened, stopped_clock):
    made, _ = opened
    clock = stopped_clock(timing_socket)
    data = encoded().ljust(4096)
    received = [made._enqueue(data, credentials(70, 1000), clock.now) for _ in range(SENDER_BURST // 4096 + 3)]
    assert received.count("") == SENDER_BURST // 4096
    assert received[-3:] == ["rate_limited"] * 3
    assert made._enqueue(data, credentials(71, 1000), clock.now) == ""
    assert made._enqueue(data, credentials(70, 1000), clock.now + 4096 / timing_socket.SENDER_RATE) == ""
    assert made._enqueue(data, credentials(70, 1000), clock.now + 4096 / timing_socket.SENDER_RATE) == "rate_limited"


async def test_senders_and_queue_are_bounded(opened, stopped_clock, monkeypatch):
    made, _ = opened
    clock = stopped_clock(timing_socket)
    data = encoded()
    monkeypatch.setattr(timing_socket, "MAX_QUEUED", len(data) * (MAX_SENDERS - 1))
    received = [made._enqueue(data, credentials(pid, 0), clock.now) for pid in range(1, MAX_SENDERS + 3)]
    assert received == [""] * (MAX_SENDERS - 1) + ["queue_full", "too_many_senders", "too_many_senders"]
    assert len(await made.take()) == MAX_SENDERS - 1
    assert made._enqueue(data, credentials(1, 0), clock.now) == ""
    clock.now += timing_socket.EXPIRY_SECONDS
    await made.take()
    assert made.senders == 0


async def test_a_user_with_many_processes_keeps_no_other_out(opened, stopped_clock):
    made, _ = opened
    clock = stopped_clock(timing_socket)
    for pid in range(1, MAX_SENDERS + 10):
        made._enqueue(encoded(), credentials(pid, 1000), clock.now)
    assert made.counts["accepted"] == 0
    assert made._enqueue(encoded(), credentials(9000, 2000), clock.now) == ""
    assert made.senders == MAX_SENDERS
    found = await made.take()
    assert [one.sender.uid for one in found].count(2000) == 1
    assert made.counts["too_many_senders"] == 1, "that of the process that gave way"


async def test_a_user_that_fills_the_queue_keeps_no_other_out(opened, stopped_clock, monkeypatch):
    made, _ = opened
    clock = stopped_clock(timing_socket)
    data = encoded()
    monkeypatch.setattr(timing_socket, "MAX_QUEUED", len(data) * 10)
    received = [made._enqueue(data, credentials(70, 1000), clock.now) for _ in range(12)]
    assert received == [""] * 10 + ["queue_full"] * 2
    assert [made._enqueue(data, credentials(71, 2000), clock.now) for _ in range(3)] == [""] * 3
    assert made.counts["queue_full"] == 3, "those that gave way; the caller counts the others"
    assert Counter(one.sender.uid for one in await made.take()) == {1000: 7, 2000: 3}


async def test_hidden_processes_of_a_user_share_a_larger_budget(opened):
    made, _ = opened
    data = encoded().ljust(4096)
    received = [made._enqueue(data, credentials(0, 1000), 0.0) for _ in range(SENDER_BURST // 4096 * 2)]
    assert set(received) == {""}
    (first, *_) = await made.take()
    assert first.sender == (0, 1000, Owner())


async def test_datagrams_without_credentials_are_rejected(opened):
    made, _ = opened
    assert made._enqueue(encoded(), [], 0.0) == "no_credentials"


async def test_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "timing.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as old:
        old.bind(str(path))
    made = TimingSocket(str(path))
    await made.open()
    again = TimingSocket(str(path))
    with pytest.raises(FileExistsError, match="another exporter is listening"):
        await again.open()
    await again.close()
    assert path.is_socket()
    await made.close()
    await made.close()
    assert not path.exists()


async def test_other_file_at_the_socket_path_is_not_replaced(tmp_path):
    path = tmp_path / "timing.sock"
    path.write_text("kept")
    made = TimingSocket(str(path))
    with pytest.raises(FileExistsError, match="remove it, or configure another path"):
        await made.open()
    await made.close()
    assert path.read_text() == "kept"


def make_accessible(folder):
    """Make a temporary folder accessible to other users, with the folders that pytest created above it."""
    for one in (folder, *(above for above in folder.parents if above.name.startswith(("pytest-", "popen-")))):
        one.chmod(0o755)


SENDS = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(sys.argv[1])
one.send(sys.argv[2].encode())
"""


async def test_datagrams_of_another_user_are_accepted(tmp_path_factory):
    if os.getuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("other")
    make_accessible(folder)
    made = TimingSocket(str(folder / "run" / "timing.sock"))
    await made.open()
    command = [sys.executable, "-c", SENDS, str(folder / "run" / "timing.sock"), encoded().decode()]
    await asyncio.to_thread(subprocess.run, command, check=True)
    (one,) = await take_until(made, 1)
    assert (one.sender.pid > 1, one.sender.uid) == (True, 65534)
    await made.close()


LISTENS = """
import asyncio, os, sys
from exporter.sources.nccl.timing_socket import TimingSocket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
async def main():
    made = TimingSocket(sys.argv[1])
    await made.open()
    print("open", flush=True)
    while not (found := await made.take()):
        await asyncio.sleep(0.01)
    print(found[0].sender.uid, flush=True)
    await made.close()
asyncio.run(main())
"""


def test_socket_works_as_an_unprivileged_user(tmp_path_factory):
    if os.getuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("plain")
    make_accessible(folder)
    folder.chmod(0o777)
    path = str(folder / "run" / "timing.sock")
    with subprocess.Popen([sys.executable, "-c", LISTENS, path], stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout.readline() == "open\n"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(path)
                sender.send(encoded())
            assert daemon.stdout.readline() == "0\n"
            assert daemon.wait(20) == 0
        finally:
            daemon.kill()
