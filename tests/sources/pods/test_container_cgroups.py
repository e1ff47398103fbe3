"""Pods of namespaces by the control groups of the processes in them; a namespace's file is any file here."""

import pytest

from exporter.sources.pods import container_cgroups
from exporter.sources.pods.container_cgroups import host_namespace, namespace_id, pods_of_namespaces

FIRST, SECOND = "0d9c9b5e-6d2c-4d5c-9c39-2f4f0a1f8a11", "5b0ff7a2-7b5c-4ef6-8d3e-0b1f4d0d4a02"
NO_POD = "0::/system.slice/containerd.service\n"


def group(uid):
    """The control group of a container in a pod, by the driver systemd on cgroup v2."""
    slice_ = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    return f"0::/kubepods.slice/kubepods-burstable.slice/{slice_}/cri-containerd-{'ab' * 32}.scope\n"


@pytest.fixture
def procfs(tmp_path):
    """Processes by PID, and files of the namespaces that they are in."""
    folder = tmp_path / "proc"
    (folder / "sys").mkdir(parents=True)

    def add(pid, namespace, cgroup):
        file = tmp_path / namespace
        file.touch()
        (folder / str(pid) / "ns").mkdir(parents=True)
        (folder / str(pid) / "ns" / "net").symlink_to(file)
        (folder / str(pid) / "cgroup").write_text(cgroup)
        return namespace_id(file)

    add.root = folder
    add(1, "host", "0::/init.scope\n")
    return add


def of_pods(procfs, failures):
    """What is found beside the namespace of the host."""
    found = pods_of_namespaces(procfs.root, failures)
    host = host_namespace(procfs.root)
    return {namespace: pods for namespace, pods in found.items() if namespace != host}


def test_the_pods_of_namespaces_are_those_of_their_processes(procfs):
    first = procfs(100, "a", group(FIRST))
    procfs(101, "a", group(FIRST))
    second = procfs(200, "b", group(SECOND))
    host = procfs(300, "host", group(SECOND))  # a pod with hostNetwork
    failures = []
    assert pods_of_namespaces(procfs.root, failures) == {first: {FIRST}, second: {SECOND}, host: {SECOND}}
    assert host_namespace(procfs.root) == host
    assert failures == []


def test_a_process_of_no_pod_in_a_namespace_does_not_count(procfs):
    first = procfs(100, "a", group(FIRST))
    procfs(99, "a", NO_POD)
    other = procfs(50, "lab", NO_POD)
    assert of_pods(procfs, []) == {first: {FIRST}, other: frozenset()}


def test_processes_of_two_pods_are_both_returned(procfs):
    first = procfs(100, "a", group(FIRST))
    procfs(200, "a", group(SECOND))
    assert of_pods(procfs, []) == {first: {FIRST, SECOND}}


def test_a_process_that_ended_meanwhile_is_no_failure(procfs):
    first = procfs(100, "a", group(FIRST))
    procfs(200, "b", group(SECOND))
    (procfs.root / "200" / "ns" / "net").unlink()
    ended = procfs(300, "c", group(SECOND))
    (procfs.root / "300" / "cgroup").unlink()
    failures = []
    assert of_pods(procfs, failures) == {first: {FIRST}, ended: frozenset()}
    assert failures == []


def test_namespaces_that_may_not_be_read_are_one_failure_with_its_remedy(procfs, monkeypatch):
    first = procfs(100, "a", group(FIRST))
    procfs(200, "b", group(SECOND))
    procfs(201, "b", group(SECOND))
    original = container_cgroups.namespace_id

    def refusing(path):
        if str(path).split("/")[-3] in {"200", "201"}:
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(container_cgroups, "namespace_id", refusing)
    failures = []
    assert of_pods(procfs, failures) == {first: {FIRST}}
    assert [(one.device, one.reason) for one in failures] == [("processes", "eacces")]
    assert "2 processes" in failures[0].detail
    assert "CAP_SYS_PTRACE" in failures[0].detail


def test_too_many_processes_are_reported(procfs, monkeypatch):
    monkeypatch.setattr(container_cgroups, "MAX_PROCESSES", 1)
    procfs(100, "a", group(FIRST))
    failures = []
    assert len(pods_of_namespaces(procfs.root, failures)) <= 1
    assert [one.reason for one in failures] == ["too_many_processes"]


def test_a_missing_procfs_is_a_failure(tmp_path):
    failures = []
    assert pods_of_namespaces(tmp_path / "none", failures) == {}
    assert [one.reason for one in failures] == ["enoent"]


def test_the_namespace_of_the_host_is_that_of_its_first_process_else_the_own(tmp_path, procfs):
    own = procfs("self", "own", NO_POD)
    assert host_namespace(procfs.root) != own
    (procfs.root / "1" / "ns" / "net").unlink()
    assert host_namespace(procfs.root) == own
    assert host_namespace(tmp_path / "none") is None
