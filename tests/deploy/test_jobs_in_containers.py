"""The DaemonSet sees jobs in other containers: the daemon without rights, jobs of other users, one folder in common.

Both sides run as the manifests of deploy/ say: the daemon with its arguments, its configuration and its init container,
the job with the script and the environment of the example. Only the program of the job and its launcher are stubs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.containers import Containers, containers, running
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.stack import free_port
from tests.helpers.training_bench import line

KUBERNETES = ROOT / "deploy" / "kubernetes"
SHARED = "/run/fabric-exporter"

JOB = """
import fabric_timing, os, pathlib, sys, time
name = os.environ["POD_NAME"]
assert os.uname().nodename == name
log = pathlib.Path(os.environ["NCCL_DEBUG_FILE"].replace("%h", name).replace("%p", str(os.getpid())))
log.write_bytes(pathlib.Path("/job/nccl.log").read_bytes())
records = open(pathlib.Path(os.environ["NCCL_INSPECTOR_DUMP_DIR"]) / f"{name}-pid{os.getpid()}.log", "w")
while True:
    if os.environ["RANK"] != "7":  # which uses the hook alone
        records.write(pathlib.Path("/job/record").read_text())
        records.flush()
    with fabric_timing.collective("AllReduce", size=1 << 20):
        time.sleep(0.01)
    fabric_timing.step()
    time.sleep(0.2)
"""
"""The stub of a job: what NCCL writes is in files of /job; the hook is the real one."""


def manifest(file: str, kind: str) -> dict[str, Any]:
    (found,) = (one for one in yaml.safe_load_all((KUBERNETES / file).read_text()) if one["kind"] == kind)
    return found


POD = manifest("daemonset.yaml", "DaemonSet")["spec"]["template"]["spec"]
TRAINING = manifest("training-jobset.yaml", "JobSet")
TRAINER = TRAINING["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]


@pytest.fixture
def made(tmp_path: Path, program) -> Containers:
    return containers(tmp_path, program)


@pytest.fixture
def shared(tmp_path: Path, made: Containers) -> Path:
    """Return the folder that the kubelet created and the init container changed."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    (init,) = POD["initContainers"]
    context = init["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    command = made.command(
        [*init["command"], *init["args"]],
        user=context["runAsUser"],
        group=context["runAsGroup"],
        mounts={folder: SHARED},
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    return folder


class Daemon:
    """The exporter in its container."""

    def __init__(self, port: int) -> None:
        self.port = port

    def values(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return all samples by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
            families = text_string_to_metric_families(reply.read().decode())
            return {(one.name, frozenset(one.labels.items())): one.value for each in families for one in each.samples}

    def find(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        return {key: value for (each, key), value in self.values().items() if each == name and labels.items() <= key}

    def wait_for(self, name: str, **labels: str) -> dict[str, str]:
        """Wait until a metric is above 0, and return its labels."""
        for _ in range(900):
            try:
                found = [dict(key) for key, value in self.find(name, **labels).items() if value > 0]
            except OSError:
                found = []
            if found:
                return found[0]
            time.sleep(0.1)
        known = [f"{each} {dict(key)} {value}" for (each, key), value in self.values().items() if "_nccl_" in each]
        raise AssertionError("\n".join([f"no {name} {labels} in", *known]))


@contextmanager
def daemon(made: Containers, shared: Path, host: tuple[str, ...]) -> Iterator[Daemon]:
    """Run the daemon of the DaemonSet."""
    (container,) = POD["containers"]
    settings = yaml.safe_load(manifest("daemonset.yaml", "ConfigMap")["data"]["config.yaml"])
    for name in ("nccl", "nccl_facts"):
        settings["sources"][name]["interval"] = "1s"  # so that the test is short
    config = made.folder / "config"
    config.mkdir()
    (config / "config.yaml").write_text(json.dumps(settings))
    port = free_port()
    values = {"[$(HOST_IP)]:10315": f"127.0.0.1:{port}"}
    args = [re.sub(r"=(.*)", lambda found: "=" + values.get(found[1], found[1]), one) for one in container["args"]]
    mounts = {shared: SHARED, config: "/etc/fabric-exporter", "/proc": "/host/proc", "/sys": "/host/sys"}
    inside = {one["mountPath"] for one in container["volumeMounts"]}
    assert inside == set(mounts.values())
    context = POD["securityContext"]
    command = made.command(
        [sys.executable, "-m", "exporter", *args],
        user=context["runAsUser"],
        group=context["runAsGroup"],
        mounts=mounts,
        host=("net", *host),
    )
    environment = {"NODE_NAME": "gpu-001", "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "TMPDIR": "/"}
    with running(command, environment, made.folder / "daemon.log"):
        one = Daemon(port)
        one.wait_for("fabric_source_up", source="nccl")
        yield one


def environment_of(name: str, pod: str, folder: str) -> dict[str, str]:
    """Return the environment of the example as the kubelet would make it, for a folder mounted at some path."""
    fields = {
        "metadata.name": pod,
        "metadata.namespace": TRAINING["metadata"]["namespace"],
        "metadata.labels['jobset.sigs.k8s.io/jobset-name']": name,
    }
    made: dict[str, str] = {}
    for one in TRAINER["env"]:
        text = fields[one["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in one else one["value"]
        text = re.sub(r"\$\((\w+)\)", lambda found: made.get(found[1], found[0]), text)
        made[one["name"]] = text.replace(SHARED, folder)
    return made


@contextmanager
def job(made: Containers, shared: Path, name: str, *, rank: str, user: int, folder: str) -> Iterator[None]:
    """Run a job of the example, whose launcher is a stub."""
    files = made.folder / f"job-{name}"
    files.mkdir()
    files.chmod(0o755)
    (files / "torchrun").write_text(f'#!/bin/sh\nexec {sys.executable} /job/job.py "$@"\n')
    (files / "torchrun").chmod(0o755)
    (files / "job.py").write_text(JOB)
    (files / "record").write_text(line(rank=int(rank), comm="0x77").decode())
    shutil.copy(FIXTURES / "nccl-facts" / "roce.log", files / "nccl.log")
    pod = f"{name}-worker-0-0-x7k2p"
    environment = {
        "PATH": "/job:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT / "exporter" / "hook"),
        "RANK": rank,
        "WORLD_SIZE": "16",
        **environment_of(name, pod, folder),
    }
    command = made.command(
        [*TRAINER["command"], *TRAINER["args"]], user=user, mounts={shared: folder, files: "/job"}, name=pod
    )
    with running(command, environment, made.folder / f"job-{name}.log"):
        yield


def host_pid(user: int, variable: str) -> str:
    """Return the PID on this host of a user's Python process with a variable of its environment."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            is_python = (one / "cmdline").read_bytes().startswith(sys.executable.encode())
            if is_python and one.stat().st_uid == user:
                found += [one.name] * (variable.encode() in (one / "environ").read_bytes().split(b"\0"))
    assert len(found) == 1
    return found[0]


JOBS = {"training": (4101, "3", SHARED), "other": (4102, "7", "/mnt/fabric"), "again": (4102, "7", SHARED)}
"""User, rank and path of the shared folder of each job."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("host", [(), ("pid",)], ids=["own PID namespace", "hostPID"])
def test_the_daemon_sees_jobs_of_other_containers(made: Containers, shared: Path, host: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(daemon(made, shared, host))
        for name, (user, rank, folder) in JOBS.items():
            stack.enter_context(job(made, shared, name, rank=rank, user=user, folder=folder))
        status = Path("/proc", host_pid(65534, "NODE_NAME=gpu-001"), "status").read_text()
        assert re.search(r"^Uid:\t65534\t.*^CapEff:\t0+$", status, re.MULTILINE | re.DOTALL)

        one.wait_for(
            "fabric_nccl_inspector_lines_total", outcome="collective"
        )  # of the first job; the others have none
        for name, (user, rank, _) in JOBS.items():
            found = one.wait_for("fabric_nccl_collectives_total", train_job=f"default-{name}", collective="AllReduce")
            assert found["rank"] == rank
            one.wait_for("fabric_nccl_transport_info", train_job=f"default-{name}", network="IB")
            about = one.wait_for("fabric_nccl_rank_info", train_job=f"default-{name}")
            pod = f"{name}-worker-0-0-x7k2p"
            assert (about["rank"], about["host"]) == (rank, "gpu-001")
            # From another PID namespace only the PID inside the job's and the user are known, which two jobs share.
            unique = bool(host) or user == 4101
            assert about.get("host_pid", "") == (host_pid(user, f"POD_NAME={pod}") if unique else "")
        one.wait_for("fabric_nccl_timing_datagrams_total", outcome="accepted")
        outcomes = one.find("fabric_nccl_timing_datagrams_total")
        assert {dict(key)["outcome"] for key, count in outcomes.items() if count} == {"accepted"}
        assert one.find("fabric_nccl_timing_senders") == {frozenset(): 3 if host else 2}
        failures = one.find("fabric_source_failures_total")
        assert not {dict(key)["source"] for key, count in failures.items() if count} & {"nccl", "nccl_facts"}


@pytest.mark.timeout(300)
def test_no_job_changes_what_belongs_to_another_or_to_the_exporter(made: Containers, shared: Path) -> None:
    (shared / "timing.sock").touch()
    os.chown(shared / "timing.sock", 65534, 65534)

    def failed(user: int, *scripts: str) -> list[str]:
        """Return the scripts that fail when a user runs them, one after the other."""
        each = 'for one in "$@"; do (eval "$one") 2>/dev/null >&2 || echo "$one"; done'
        command = made.command(["sh", "-c", each, "sh", *scripts], user=user, mounts={shared: SHARED})
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    for place in (f"{SHARED}/nccl", f"{SHARED}/nccl-logs"):
        created = ("umask 022; mkdir a", "umask 022; echo x > a/x.log", "echo x > flat.log")
        assert failed(4101, *(f"cd {place}; {one}" for one in created)) == []
        refused = (
            "rm a/x.log",
            "mv a b",
            "echo y > a/y.log",
            "echo y >> a/x.log",
            "rm flat.log",
            f"mv {place} {place}2",
        )
        others = [f"cd {place}; {one}" for one in refused]
        assert failed(4102, *others) == others
        assert failed(4102, f"cd {place}; cat a/x.log; mkdir b") == []
    attacks = [f"rm {SHARED}/timing.sock", f"touch {SHARED}/other.sock", f"mv {SHARED}/timing.sock {SHARED}/t"]
    assert failed(4101, *attacks) == attacks
    assert failed(65534, f"rm {SHARED}/timing.sock && touch {SHARED}/timing.sock") == []
