"""PodIdentities: files, processes and kubelet of one host together, each of which may be missing, refused or late."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from exporter.sources.pods import identity
from exporter.sources.pods.cni_results import Attachment
from exporter.sources.pods.container_cgroups import namespace_id
from exporter.sources.pods.identity import IdentityPlaces, PodIdentities
from exporter.sources.pods.model import NamespaceRef, PodOwner
from tests.helpers.kubelet import METHOD, pod, reply, serving
from tests.sources.pods.test_cni_results import UID, cached
from tests.sources.pods.test_container_cgroups import group

NETNS = "/var/run/netns/cni-1"
VF = "0000:c0:01.3"
POD = PodOwner("training", "llama-worker-0", UID)


class Host:
    """A host's files below one folder; a namespace is any file there."""

    def __init__(self, root):
        self.root = root
        self.cni, self.logs, self.procfs = root / "var/lib/cni/results", root / "var/log/pods", root / "proc"
        self.socket, self.sysfs = root / "kubelet.sock", root / "sys"
        for folder in (self.cni, self.logs, self.procfs, root / "var/run/netns"):
            folder.mkdir(parents=True)
        self.function(VF, "0x020000")
        self.namespace("host")
        self.process(1, "host", "0::/init.scope\n")

    def namespace(self, name):
        path = self.root / "var/run/netns" / name
        path.touch()
        status = path.stat()
        return NamespaceRef(str(path), status.st_dev, status.st_ino)

    def process(self, pid, namespace, cgroup):
        folder = self.procfs / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/net").symlink_to(self.namespace(namespace).path)
        (folder / "cgroup").write_text(cgroup)

    def function(self, pci, kind):
        folder = self.sysfs / "bus/pci/devices" / pci
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")

    def result(self, name="a", netns=NETNS, **changes):
        (self.cni / name).write_text(json.dumps(cached(netns=netns, **changes)))

    def log_folder(self, owner=POD):
        (self.logs / "_".join(owner[:3])).mkdir()

    def places(self, **changes):
        made = IdentityPlaces([self.cni], self.logs, self.socket, False, self.procfs, self.sysfs, self.root)
        return made._replace(**changes)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
async def identities(host, monkeypatch):
    monkeypatch.setattr(identity, "CALL_WAIT", 30.0)
    made = []

    def make(**changes):
        made.append(PodIdentities(host.places(**changes)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test lets them."""
    now = [1000.0]
    monkeypatch.setattr(identity, "monotonic", lambda: now[0])
    return now


async def test_a_host_without_kubernetes_has_no_owners_and_no_failures(tmp_path):
    places = IdentityPlaces(
        [tmp_path / "cni"], tmp_path / "logs", tmp_path / "socket", False, tmp_path, tmp_path, tmp_path
    )
    found = PodIdentities(places)
    assert await found.refresh() == []
    assert found.owner(NamespaceRef("/run/netns/x", 1, 2)) is None
    assert (found.holders(), found.shares()) == ({}, {})
    await found.close()


async def test_a_result_of_libcni_alone_names_pod_and_interfaces(host, identities):
    namespace = host.namespace("cni-1")
    interfaces = [{"name": "net1", "mac": "d6:25:47:a2:36:6b", "sandbox": NETNS}]
    host.result(result={"interfaces": interfaces})
    found = identities()
    assert await found.refresh() == []
    assert found.owner(namespace) == POD
    assert found.attachments(namespace) == (Attachment("net1", "rail-0", "sriov", VF, "d6:25:47:a2:36:6b"),)
    assert found.owner(host.namespace("cni-2")) is None


async def test_a_result_whose_namespace_is_gone_is_of_none(host, identities):
    """After a restart of the node the result is there, and the namespace is not."""
    host.result()
    found = identities()
    assert await found.refresh() == []
    assert found.owner(host.namespace("cni-1")) is None
    await found.refresh()
    assert found.owner(host.namespace("cni-1")) == POD


@pytest.mark.parametrize(
    "netns", ["", "cni-1", "/var/run/netns/../netns/cni-1", "/proc", "/proc/x/ns/net", "/proc/1/ns/net"]
)
async def test_a_path_that_is_not_of_a_namespace_of_the_pod_is_of_none(host, identities, netns):
    namespace = host.namespace("cni-1")
    host.result(netns=netns, result={})
    found = identities()
    assert await found.refresh() == []
    assert found.owner(namespace) is None
    assert found.owner(host.namespace("host")) is None


@pytest.mark.parametrize("netns", ["/var/run/netns/\0", f"/{'x' * 5000}"], ids=["NUL", "long"])
async def test_a_path_that_no_file_can_have_loses_no_other_result(host, identities, netns):
    host.result("a", netns)
    host.result("b")
    namespace = host.namespace("cni-1")
    found = identities()
    assert await found.refresh() == []
    assert found.owner(namespace) == POD


@pytest.mark.parametrize(("uid", "expected"), [(UID, POD), ("5b0ff7a2-7b5c-4ef6-8d3e-0b1f4d0d4a02", None)])
async def test_a_process_as_the_namespace_counts_if_it_is_of_the_pod(host, identities, uid, expected):
    """Docker gives /proc/PID/ns/net, and the PID may be another process by now."""
    namespace = host.namespace("cni-1")
    host.process(4711, "cni-1", group(uid))
    host.result(netns="/proc/4711/ns/net")
    found = identities()
    assert await found.refresh() == []
    assert found.owner(namespace) == expected


async def test_processes_and_log_folders_name_a_pod_without_results(host, identities):
    namespace = host.namespace("cni-1")
    host.process(4711, "cni-1", group(UID))
    found = identities(processes=True)
    await found.refresh()
    assert found.owner(namespace) == PodOwner("", "", UID)
    host.log_folder()
    await found.refresh()
    assert found.owner(namespace) == POD
    without = identities()
    await without.refresh()
    assert without.owner(namespace) is None


async def test_disagreement_is_reported_and_is_no_owner(host, identities):
    namespace = host.namespace("cni-1")
    host.result()
    host.process(4711, "cni-1", group("5b0ff7a2-7b5c-4ef6-8d3e-0b1f4d0d4a02"))
    found = identities(processes=True)
    (failure,) = await found.refresh()
    assert failure.reason == "ambiguous"
    assert "training/llama-worker-0" in failure.detail
    assert found.owner(namespace) is None


async def test_one_place_that_cannot_be_read_loses_no_other(host, identities):
    namespace = host.namespace("cni-1")
    host.result()
    (host.cni / "b").write_text("{")
    host.logs.rmdir()
    host.logs.touch()
    found = identities()
    assert [one.reason for one in await found.refresh()] == ["malformed", "enotdir"]
    assert found.owner(namespace) == POD


# --- with kubelet


def answering(*outcomes):
    left = list(outcomes)

    async def answer():
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    return answer


@pytest.fixture
def recorded():
    """A reply with a virtual function of one pod, and a share of a pool of another."""
    pytest.importorskip("grpc", reason="needs grpcio")
    return reply(
        pod("training", "llama-worker-0", trainer={"openshift.io/rail0": [VF]}),
        pod("training", "other-0", trainer={"rdma/hca": ["3"]}),
    )


async def test_kubelet_adds_the_container_and_is_called_each_ten_seconds_at_most(host, identities, clock, recorded):
    namespace = host.namespace("cni-1")
    host.result()
    found = identities()
    async with serving(host.socket, answering(recorded)) as called:
        for _ in range(3):
            assert await found.refresh() == []
        assert called == [METHOD]
        assert found.owner(namespace) == POD._replace(container="trainer")
        assert found.holders().get(VF) == POD._replace(container="trainer")
        assert found.shares() == {("rdma/hca", PodOwner("training", "other-0", "", "trainer")): 1}
        clock[0] += 9.9
        await found.refresh()
        assert len(called) == 1
        clock[0] += 0.2
        await found.refresh()
        assert len(called) == 2


async def test_kubelet_that_does_not_reply_delays_no_other_place(host, identities, monkeypatch):
    monkeypatch.setattr(identity, "CALL_WAIT", 0.05)
    namespace = host.namespace("cni-1")
    host.result()
    replies = asyncio.Event()

    async def answer():
        await replies.wait()
        return reply(pod("training", "llama-worker-0", trainer={"openshift.io/rail0": [VF]}))

    async with serving(host.socket, answer) as called:
        found = identities()
        async with asyncio.timeout(5):
            for _ in range(2):
                assert await found.refresh() == []
                assert found.owner(namespace) == POD
        replies.set()
        await found._call
        assert await found.refresh() == []
    assert called == [METHOD]
    assert found.owner(namespace) == POD._replace(container="trainer")


async def test_kubelet_alone_names_the_pod_of_a_device_seen_in_a_namespace(host, identities, recorded):
    namespace = host.namespace("cni-1")
    found = identities()
    async with serving(host.socket, answering(recorded)):
        await found.refresh()
    assert found.owner(namespace) is None
    assert found.owner(namespace, [VF]) == PodOwner("training", "llama-worker-0", "", "trainer")


async def test_a_malformed_reply_is_a_failure_and_the_last_one_is_used_for_a_minute(host, identities, clock, recorded):
    host.result()
    namespace = host.namespace("cni-1")
    found = identities()
    async with serving(host.socket, answering(recorded, b"\x0a\x7f")):
        assert await found.refresh() == []
        for _ in range(6):
            clock[0] += 10
            (failure,) = await found.refresh()
            assert (failure.device, failure.reason) == ("kubelet", "malformed")
            assert found.holders()[VF].container == "trainer"
        clock[0] += 10
        await found.refresh()
        assert found.holders()[VF].container == ""
        assert found.owner(namespace) == POD


async def test_after_a_restart_of_kubelet_its_devices_are_known_again(host, identities, clock, recorded):
    found = identities()
    async with serving(host.socket, answering(recorded)):
        assert await found.refresh() == []
    clock[0] += 100
    assert await found.refresh() == []  # there is no socket: as where there is no kubelet
    assert found.holders().get(VF) is None
    other = reply(pod("training", "next-0", trainer={"openshift.io/rail0": [VF]}))
    async with serving(host.socket, answering(other)):
        clock[0] += 100
        assert await found.refresh() == []
        assert found.holders()[VF].pod_name == "next-0"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
async def test_the_namespaces_of_this_machine_are_of_no_pod(identities, tmp_path):
    """With the real procfs: no process here is of a pod, so no namespace has one."""
    found = identities(processes=True, procfs=Path("/proc"), logs=None, kubelet=None, cni=())
    assert [one.reason for one in await found.refresh() if one.reason != "eacces"] == []
    own = namespace_id(Path("/proc/self/ns/net"))
    assert found.owner(NamespaceRef("/proc/self/ns/net", *own)) is None


async def test_only_network_devices_have_holders(host, identities):
    """InfiniBand is 0x0207 of PCI Code and ID Assignment, a GPU 0x0302; one that is not there is left out."""
    ids = {"0000:c0:01.4": "0x020700", "0000:1b:00.0": "0x030200"}
    for pci, kind in ids.items():
        host.function(pci, kind)
    pytest.importorskip("grpc", reason="needs grpcio")
    given = [*ids, VF, "0000:ff:00.0", "GPU-1", "mlx5_core.sf.4"]
    found = identities()
    async with serving(host.socket, answering(reply(pod("training", "llama-worker-0", trainer={"r": given})))):
        await found.refresh()
    assert set(found.holders()) == {VF, "0000:c0:01.4"}
