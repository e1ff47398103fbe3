"""The node role of the chart in a container, with the rights of each variant: what they allow works.

What they do not allow is logged once. Flags, configuration, user, capabilities and mounts are those of the chart; the
host has pods in network namespaces with and without a name, results of libcni, folders of logs and a kubelet.
"""

import json
import os
import re
import socket as socketlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.charts import objects_of, pods
from tests.helpers.containers import Containers, containers, running
from tests.helpers.kubelet import pod, reply, serving_in_thread
from tests.helpers.kubernetes_objects import one
from tests.helpers.paths import ROOT
from tests.helpers.stack import free_port
from tests.helpers.unprivileged import NOBODY
from tests.sources.pods.test_cni_results import UID, cached

pytestmark = pytest.mark.slow

POLLS = 5
"""Reads of the source before its log is judged."""

LAST_READ = "fabric_source_last_success_timestamp_seconds"

VF = "0000:c0:01.3"


class Node:
    """A host with pods: folders of its container runtime and kubelet, by the volumes of the chart."""

    def __init__(self, folder: Path, program: Callable[[str], str]) -> None:
        self.folder, self.program = folder, program
        self.volumes = {name: folder / name for name in ("namespaces", "cni", "pod-logs", "pod-resources", "shared")}
        for one_folder in self.volumes.values():
            one_folder.mkdir()
        results = self.volumes["cni"] / "results"
        results.mkdir(mode=0o700)  # as libcni makes it
        result = {"interfaces": [{"name": "net1", "sandbox": "/var/run/netns/cni-1"}]}
        (results / "a").write_text(json.dumps(cached(netns="/var/run/netns/cni-1", result=result)))
        (results / "a").chmod(0o600)
        self.volumes["pod-logs"].chmod(0o750)  # as kubelet makes it since 1.30
        (self.volumes["pod-logs"] / f"training_llama-worker-0_{UID}").mkdir()

    @contextmanager
    def pods(self) -> Iterator[None]:
        """Run a pod in a namespace with a name, and a process in one without; each has a NIC."""
        file = self.volumes["namespaces"] / "cni-1"
        file.touch()
        veth = "ip link add net1 type veth peer name peer1"
        subprocess.run([self.program("unshare"), f"--net={file}", "sh", "-c", veth], check=True)
        nameless = ["unshare", "--net", "sh", "-c", f"{veth} && exec sleep 300"]
        with subprocess.Popen(nameless) as process:
            try:
                yield
            finally:
                process.kill()
                subprocess.run([self.program("umount"), file], check=True)


@pytest.fixture
def node(tmp_path: Path, made: Containers, program) -> Node:
    program("ip")
    return Node(tmp_path, program)


@pytest.fixture
def made(tmp_path: Path, program) -> Containers:
    return containers(tmp_path, program)


class Daemon:
    """The exporter in its container."""

    def __init__(self, port: int, log: Path) -> None:
        self._url, self._log = f"http://127.0.0.1:{port}/metrics", log

    def samples(self) -> list[Any]:
        with urllib.request.urlopen(self._url, timeout=10) as response:
            families = text_string_to_metric_families(response.read().decode())
            return [sample for family in families for sample in family.samples]

    def rows(self, name: str, **labels: str) -> list[dict[str, str]]:
        return [s.labels for s in self.samples() if s.name == name and labels.items() <= s.labels.items() and s.value]

    def wait(self) -> None:
        """Wait until the source was read some times."""
        deadline, times = time.monotonic() + 60, set()
        while len(times) < POLLS:
            assert time.monotonic() < deadline, self._log.read_text()
            with suppress(OSError):
                times |= {s.value for s in self.samples() if s.name == LAST_READ and s.labels["source"] == "pods"}
            time.sleep(0.1)

    def failures(self) -> set[tuple[str, str]]:
        """Return device and reason of the failures of the source."""
        rows = self.rows("fabric_source_failures_total", source="pods")
        return {(row.get("device", ""), row["reason"]) for row in rows}

    def warnings(self) -> list[str]:
        """Return the texts that were logged as warnings or errors."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line["msg"] for line in lines if line["level"] != "info"]


@contextmanager
def daemon(
    made: Containers, node: Node, variant: str, user: int | None = None, capabilities: list[str] | None = None
) -> Iterator[Daemon]:
    """Run the daemon as a variant of the chart has it, or with another user or other capabilities."""
    manifests = objects_of(variant)
    spec = pods(manifests)["node"]["spec"]
    (container,) = spec["containers"]
    (text,) = one(manifests, "ConfigMap")["data"].values()
    settings = yaml.safe_load(text)
    off = ("nic", "rdma", "bursts", "pci", "nccl", "nccl_facts", "lldp", "hostcheck")
    settings["sources"].update({name: {"enabled": False} for name in off})
    settings["sources"]["pods"]["interval"] = "500ms"
    config = node.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config.yaml").write_text(json.dumps(settings))
    port = free_port()
    args = [re.sub(r"^(--web.listen-address)=.*", rf"\1=127.0.0.1:{port}", each) for each in container["args"]]
    inside = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    system = {"sys": "/sys", "proc": "/proc", "config": config}
    mounts = {str({**node.volumes, **system}[name]): path for name, path in inside.items()}
    mounts |= {folder: folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder}
    context = {**spec["securityContext"], **container["securityContext"]}
    command = made.command(
        [sys.executable, "-m", "exporter", *args],
        user=context["runAsUser"] if user is None else user,
        group=context["runAsGroup"],
        mounts=mounts,
        host=["net"],
        capabilities=context["capabilities"]["add"] if capabilities is None else capabilities,
    )
    python_path = ":".join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"NODE_NAME": "gpu-001", "PYTHONPATH": python_path, "PATH": os.environ["PATH"], "TMPDIR": "/"}
    log = node.folder / "daemon.log"
    with running(command, environment, log):
        made_daemon = Daemon(port, log)
        made_daemon.wait()
        yield made_daemon


ENTRY = ("", "eperm")
RESULTS, LOGS = ("/var/lib/cni/results", "eacces"), ("/var/log/pods", "eacces")
KUBELET, PROCESSES = ("kubelet", "eacces"), ("processes", "eacces")
NAMED, NAMELESS = "cni-1", "net:[…]"
POD, UNKNOWN = ("training", "llama-worker-0", ""), ("", "", "")

CASES = {
    # Variant, user and capabilities, by default the variant's: owners of the namespaces that are read, and failures.
    "nothing": ("node-pods", NOBODY, [], {}, {ENTRY, RESULTS, LOGS}),
    "root": ("node-pods", 0, [], {}, {ENTRY}),
    "entry": ("node-pods", NOBODY, ["SYS_ADMIN"], {NAMED: UNKNOWN}, {RESULTS, LOGS}),
    "pods.enabled": ("node-pods", None, None, {NAMED: POD}, set()),
    "processes": (
        "node-pods-all",
        NOBODY,
        ["SYS_ADMIN", "SYS_PTRACE"],
        {NAMED: UNKNOWN, NAMELESS: UNKNOWN},
        {RESULTS, LOGS, KUBELET},
    ),
    "kubelet": ("node-pods-all", 0, ["SYS_ADMIN"], {NAMED: (*POD[:2], "trainer")}, {PROCESSES}),
    "all": ("node-pods-all", None, None, {NAMED: (*POD[:2], "trainer"), NAMELESS: UNKNOWN}, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_rights_allow_what_the_table_says_and_each_that_is_missing_is_logged_once(
    made: Containers, node: Node, name: str
) -> None:
    variant, user, capabilities, expected, failures = CASES[name]
    data = reply(pod("training", "llama-worker-0", trainer={"openshift.io/rail0": [VF], "rdma/hca": ["7"]}))
    socket = node.volumes["pod-resources"] / "kubelet.sock"
    with node.pods(), serving_in_thread(socket, data):
        socket.chmod(0o660)
        with daemon(made, node, variant, user, capabilities) as running_daemon:
            owners = {
                re.sub(r"\d+", "…", row["netns"]) if "[" in row["netns"] else row["netns"]: tuple(
                    row.get(label, "") for label in ("pod_namespace", "pod_name", "container_name")
                )
                for row in running_daemon.rows("fabric_pod_nic_info", device="net1")
            }
            shares = running_daemon.rows("fabric_pod_device_shares")
            found, warnings = running_daemon.failures(), running_daemon.warnings()
    assert owners == expected
    assert [one["resource"] for one in shares] == (
        ["rdma/hca"] if any(container for *_, container in owners.values()) else []
    )
    # A machine may have processes that are not even shown with CAP_SYS_PTRACE, of a user namespace above.
    assert found - {PROCESSES} == failures - {PROCESSES}
    assert PROCESSES not in failures or PROCESSES in found
    assert len(warnings) == len(found), warnings
    assert len({re.search(r"\((\w+)\): ([^:]*)", text)[0] for text in warnings}) == len(found), warnings


def test_a_socket_of_a_read_only_mount_can_be_connected_to(tmp_path: Path, made: Containers, program) -> None:
    """So kubelet's folder is mounted read-only: the mount forbids to make files, not to connect."""
    (tmp_path / "folder").mkdir()
    code = "import socket; socket.socket(socket.AF_UNIX).connect('s')"
    script = f"""
    mount --make-rprivate / && mount --bind folder folder && mount -o remount,bind,ro folder && cd folder &&
    ! touch file 2>/dev/null && exec {sys.executable} -c "{code}"
    """
    with socketlib.socket(socketlib.AF_UNIX) as server:
        server.bind(str(tmp_path / "folder" / "s"))
        server.listen()
        command = [program("unshare"), "--mount", "sh", "-c", script]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
