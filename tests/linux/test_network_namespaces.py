"""Namespaces of this machine's kernel: they are listed, entered by a thread, and not kept alive."""

import select
import subprocess
import threading
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from exporter.linux.mount_events import MountEvents
from exporter.linux.namespace_links import NamespaceLinks
from exporter.linux.network_namespaces import OWN, NamespaceKey, in_namespaces, namespace_key
from exporter.linux.nic_reader import KernelNic
from exporter.sources.pods.namespaces import label_of, list_namespaces
from exporter.sources.pods.pod_links import lower_device
from tests.helpers.unprivileged import status_without_rights


@pytest.fixture
def namespace(program):
    """Return the name of a namespace that has one end of a veth pair, whose other end is the host's."""
    ip, name = program("ip"), f"fabric-test-{uuid.uuid4().hex[:12]}"
    added = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True, check=False)
    if added.returncode:
        pytest.skip(f"needs root that may make network namespaces: {added.stderr.strip()}")
    try:
        peer = f"t{uuid.uuid4().hex[:10]}"
        command = [ip, "link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", name]
        added = subprocess.run(command, capture_output=True, text=True, check=False)
        if added.returncode:
            pytest.skip(f"needs veth: {added.stderr.strip()}")
        yield name, peer
    finally:
        subprocess.run([ip, "netns", "del", name], capture_output=True, check=False)


def listed(name):
    found = [one for one in list_namespaces(["/var/run/netns"]).namespaces.values() if label_of(one) == name]
    return found[0] if found else None


def paths(ref):
    return {NamespaceKey(ref.device, ref.inode): ref.path}


def test_links_of_a_namespace_are_those_that_pyroute2_reads_there(namespace):
    name, peer = namespace
    ref = listed(name)
    (reader,) = in_namespaces(paths(ref), NamespaceLinks, "test").values()
    with closing(reader), IPRoute(netns=name) as theirs, closing(KernelNic()) as host:
        links = reader.links()
        assert {link.name: link.ifindex for link in links} == {
            one.get_attr("IFLA_IFNAME"): one["index"] for one in theirs.get_links()
        }
        (link,) = [link for link in links if link.name == "eth0"]
        (expected,) = [one for one in theirs.get_links() if one.get_attr("IFLA_IFNAME") == "eth0"]
        assert link.lower_namespace == expected.get_attr("IFLA_LINK_NETNSID")
        host_links = {one.ifindex: one for one in host.links()}
        assert lower_device(link, reader.own_namespace_id(), host_links) == peer


def test_the_thread_that_enters_is_another_one_and_ends(namespace):
    threads = []
    before = namespace_key(OWN)
    results = in_namespaces(paths(listed(namespace[0])), lambda: threads.append(threading.current_thread()), "test")
    (thread,) = threads
    assert thread is not threading.main_thread()
    assert not thread.is_alive()
    assert len(results) == 1
    assert namespace_key(OWN) == before


def test_a_namespace_that_is_another_by_now_is_not_entered(namespace):
    ref = listed(namespace[0])
    wrong = NamespaceKey(ref.device, ref.inode + 1)
    (result,) = in_namespaces({wrong: ref.path}, NamespaceLinks, "test").values()
    assert isinstance(result, FileNotFoundError)


def test_the_device_of_a_namespace_is_freed_when_its_socket_is_closed(namespace, program):
    """The end of a namespace removes its veth devices, and so their peers: unless something keeps it alive."""
    name, peer = namespace
    (reader,) = in_namespaces(paths(listed(name)), NamespaceLinks, "test").values()
    try:
        subprocess.run([program("ip"), "netns", "del", name], check=True)
        assert listed(name) is None
        assert Path(f"/sys/class/net/{peer}").exists()
    finally:
        reader.close()
    gone = threading.Event()
    for _ in range(100):
        if not Path(f"/sys/class/net/{peer}").exists():
            gone.set()
            break
        gone.wait(0.05)
    assert gone.is_set()


def test_mounts_are_events_once(namespace, program):
    name, _ = namespace
    with closing(MountEvents()) as events:
        assert select.select([events], [], [], 0)[0] == []
        subprocess.run([program("ip"), "netns", "del", name], check=True)
        assert select.select([events], [], [], 5)[0] == [events]
        events.clear()
        assert select.select([events], [], [], 0.1)[0] == []


def test_own_namespace_and_other_files_are_not_listed(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "own").symlink_to(OWN)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    listing = list_namespaces([str(tmp_path), str(tmp_path / "missing")])
    assert not listing.namespaces
    assert not listing.failures
    assert (listing.own.device, listing.own.inode) == namespace_key(OWN)


def test_namespaces_of_processes_are_listed_once(namespace, program):
    name, _ = namespace
    with subprocess.Popen([program("ip"), "netns", "exec", name, "sleep", "60"]) as process:
        try:
            for _ in range(100):
                if namespace_key(f"/proc/{process.pid}/ns/net") != namespace_key(OWN):
                    break
                threading.Event().wait(0.05)
            both = list_namespaces(["/var/run/netns"], Path("/proc")).namespaces
            alone = list_namespaces([], Path("/proc")).namespaces
        finally:
            process.kill()
    key = namespace_key(f"/var/run/netns/{name}")
    assert label_of(both[key]) == name
    assert label_of(alone[key]) == f"net:[{key.inode}]"


def test_without_rights_entering_is_refused(namespace):
    ref = listed(namespace[0])

    def status():
        (result,) = in_namespaces(paths(ref), NamespaceLinks, "test").values()
        return 0 if isinstance(result, PermissionError) else 1

    assert status_without_rights(status) == 0


def test_too_many_namespaces_are_a_failure(namespace, monkeypatch):
    monkeypatch.setattr("exporter.sources.pods.namespaces.MAX_NAMESPACES", 0)
    listing = list_namespaces(["/var/run/netns"])
    assert not listing.namespaces
    assert [failure.reason for failure in listing.failures] == ["too_many"]
