"""Results of libcni: its fields as libcni/api.go writes them, and files that it would not write."""

import base64
import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from exporter.sources.pods import cni_results
from exporter.sources.pods.cni_results import Attachment, CniResultFolders, parse_result
from exporter.sources.pods.model import PodOwner
from tests.helpers.paths import FIXTURES

UID = "0d9c9b5e-6d2c-4d5c-9c39-2f4f0a1f8a11"
CONTAINER = "a3" * 32
NETNS = "/var/run/netns/cni-5f4bc7ab-3f13-5d24-94ee-7e0b2a0a9f4e"

SRIOV = {
    "cniVersion": "1.0.0",
    "name": "rail-0",
    "plugins": [{"type": "sriov", "deviceID": "0000:c0:01.3", "vlan": 0}, {"type": "rdma"}],
}


def cached(**changes):
    """A result as libcni writes it, for a virtual function that Multus attached."""
    return {
        "kind": "cniCacheV1",
        "containerId": CONTAINER,
        "config": base64.b64encode(json.dumps(changes.pop("network", SRIOV)).encode()).decode(),
        "ifName": "net1",
        "networkName": "rail-0",
        "netns": NETNS,
        "cniArgs": [
            ["IgnoreUnknown", "1"],
            ["K8S_POD_NAMESPACE", "training"],
            ["K8S_POD_NAME", "llama-worker-0"],
            ["K8S_POD_INFRA_CONTAINER_ID", CONTAINER],
            ["K8S_POD_UID", UID],
        ],
        "capabilityArgs": {"deviceID": "0000:c0:01.3", "portMappings": [{"hostPort": 1}]},
        "result": {
            "cniVersion": "1.0.0",
            "dns": {},
            "interfaces": [
                {"name": "veth12", "mac": "4a:c9:d9:42:95:ec"},
                {"mac": "D6:25:47:A2:36:6B", "name": "net1", "sandbox": NETNS},
            ],
            "ips": [{"address": "192.168.1.11/24", "interface": 1}],
        },
        **changes,
    }


def encoded(**changes):
    return json.dumps(cached(**changes)).encode()


def test_pod_namespace_interface_and_device_are_those_of_the_result():
    found = parse_result(encoded())
    assert found.pod == PodOwner("training", "llama-worker-0", UID)
    assert (found.container, found.sandbox) == (CONTAINER, NETNS)
    assert found.attachments == (Attachment("net1", "rail-0", "sriov", "0000:c0:01.3", "d6:25:47:a2:36:6b"),)


def test_files_that_libcni_wrote():
    """By libcni 1.1.2 with the plugins macvlan and host-device of Debian 12; the path of the namespace is another."""
    failures = []
    found = CniResultFolders([FIXTURES / "pods"]).read(failures)
    assert failures == []
    assert {one.pod for one in found} == {PodOwner("training", "llama-worker-0", UID)}
    assert {one.sandbox for one in found} == {"/var/run/netns/cni-1"}
    assert {one for result in found for one in result.attachments} == {
        Attachment("net1", "rail-0", "macvlan", "0000:c0:01.3", "62:d0:19:33:07:b4"),
        Attachment("net2", "rail-1", "host-device", "0000:c0:01.3", "86:ca:35:e3:4d:ea"),
    }


@pytest.mark.parametrize("capabilities", [None, {}, {"deviceID": 5}, {"deviceID": "a b"}, {"deviceID": [[]]}])
def test_a_device_that_is_no_word_costs_the_device_only(capabilities):
    found = parse_result(encoded(network={"type": "macvlan"}, capabilityArgs=capabilities))
    assert [(one.plugin, one.device) for one in found.attachments] == [("macvlan", "")]


def test_a_network_of_one_plugin_and_a_host_device_by_its_bus_id():
    found = parse_result(encoded(network={"type": "host-device", "pciBusID": "0000:17:00.0"}))
    assert [(one.plugin, one.device) for one in found.attachments] == [("host-device", "0000:17:00.0")]


def test_the_pci_address_of_an_interface_itself_is_preferred():
    """CNI 1.1 has `pciID` for each interface."""
    interfaces = [
        {"name": "net1", "sandbox": NETNS, "pciID": "0000:c0:02.1"},
        {"name": "net1.100", "sandbox": NETNS},
    ]
    found = parse_result(encoded(result={"interfaces": interfaces}))
    assert [(one.interface, one.device) for one in found.attachments] == [("net1", "0000:c0:02.1"), ("net1.100", "")]


def test_without_netns_the_sandbox_of_an_interface_is_used():
    """libcni has written `netns` since 1.2."""
    data = cached()
    del data["netns"]
    assert parse_result(json.dumps(data).encode()).sandbox == NETNS


def test_an_infiniband_address_has_twenty_octets():
    long = ":".join(["0a"] * 20)
    result = {"interfaces": [{"name": "net1", "mac": long, "sandbox": NETNS}]}
    assert parse_result(encoded(result=result)).attachments[0].mac == long
    result["interfaces"][0]["mac"] = "0a:0b"
    assert parse_result(encoded(result=result)).attachments[0].mac == ""


@pytest.mark.parametrize("arguments", [None, [], [["IgnoreUnknown", "1"]]])
def test_a_result_of_another_runtime_has_no_pod(arguments):
    found = parse_result(encoded(cniArgs=arguments))
    assert found.pod is None
    assert found.attachments


def test_a_result_of_version_0_2_has_no_interfaces():
    found = parse_result(encoded(result={"ip4": {"ip": "10.1.2.3/24"}}))
    assert (found.pod.pod_name, found.sandbox, found.attachments) == ("llama-worker-0", NETNS, ())


def test_a_bare_result_of_an_old_libcni_is_left_out():
    assert parse_result(json.dumps(cached()["result"]).encode()) is None


@pytest.mark.parametrize(
    "config",
    [
        "",
        "bm90IEpTT04=",
        base64.b64encode(b"[" * 100_000).decode(),
        base64.b64encode(b'{"type": "\xff"}').decode(),
        None,
    ],
    ids=range(5),
)
def test_a_configuration_that_is_malformed_costs_its_plugin_only(config):
    found = parse_result(encoded(config=config))
    assert found.pod.pod_uid == UID
    assert [(one.plugin, one.device) for one in found.attachments] == [("", "0000:c0:01.3")]  # of capabilityArgs


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"kind": ' + b"[" * 100_000,
        b'{"x": ' * 40_000,
        encoded(containerId=5),
        encoded(cniArgs=[["K8S_POD_NAMESPACE", "a/../b"], ["K8S_POD_NAME", "p"]]),
        encoded(cniArgs=[["K8S_POD_NAMESPACE", "n"], ["K8S_POD_NAME", 'x"} 1\nfabric_nic_up{y="']]),
        encoded(cniArgs=[["K8S_POD_NAMESPACE", "n"], ["K8S_POD_NAME", "p" * 254]]),
        encoded(cniArgs=[["K8S_POD_NAMESPACE", "n"], ["K8S_POD_NAME", "p"], ["K8S_POD_UID", "u" * 65]]),
        encoded(cniArgs=[["K8S_POD_NAME", "p"]]),
        encoded(result={"interfaces": [{"name": "net1", "sandbox": NETNS}] * 65}),
        encoded(ifName="x" * cni_results.MAX_FILE_SIZE),
    ],
    ids=range(13),
)
def test_what_libcni_would_not_write_is_an_error(data):
    with pytest.raises(ValueError):
        parse_result(data)


@pytest.mark.parametrize("name", ["", "x" * 16, "net 1", "net1\n", "näh"])
def test_an_interface_with_a_name_that_linux_does_not_allow_is_left_out(name):
    result = {"interfaces": [{"name": name, "sandbox": NETNS}, {"name": "net2", "sandbox": NETNS}]}
    assert [one.interface for one in parse_result(encoded(result=result)).attachments] == ["net2"]


# --- folders


def test_one_malformed_file_loses_no_other(tmp_path):
    (tmp_path / "a").write_bytes(b"{")
    (tmp_path / "b").write_bytes(encoded())
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("b")
    failures = []
    found = CniResultFolders([tmp_path, tmp_path / "missing"]).read(failures)
    assert [one.pod.pod_name for one in found] == ["llama-worker-0"]
    assert [(one.device, one.reason) for one in failures] == [(str(tmp_path), "malformed")]
    assert f"{tmp_path}/a" in failures[0].detail


def test_a_file_that_is_removed_while_the_folder_is_listed_loses_no_other(tmp_path, monkeypatch):
    def scandir(folder):
        entries = list(original(folder))
        (tmp_path / "a").unlink()
        return nullcontext(entries)

    original = os.scandir
    for name in "ab":
        (tmp_path / name).write_bytes(encoded())
    monkeypatch.setattr(cni_results.os, "scandir", scandir)
    failures = []
    assert len(CniResultFolders([tmp_path]).read(failures)) == 1
    assert failures == []


def test_a_file_is_read_again_when_it_changes_only(tmp_path, monkeypatch):
    read = []

    def counted(path, limit):
        read.append(Path(path).name)
        return original(path, limit)

    original = cni_results.read_untrusted
    monkeypatch.setattr(cni_results, "read_untrusted", counted)
    folders = CniResultFolders([tmp_path])
    (tmp_path / "a").write_bytes(encoded())
    (tmp_path / "b").write_bytes(b"{")
    for _ in range(3):
        failures = []
        assert len(folders.read(failures)) == 1
        assert len(failures) == 1  # that one is malformed remains true
    assert sorted(read) == ["a", "b"]
    (tmp_path / "b").write_bytes(encoded(ifName="net22"))
    assert len(folders.read([])) == 2
    (tmp_path / "a").unlink()
    assert len(folders.read([])) == 1


def test_of_too_many_results_the_newest_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cni_results, "MAX_FILES", 2)
    for number in range(3):
        arguments = [["K8S_POD_NAMESPACE", "n"], ["K8S_POD_NAME", f"p{number}"]]
        (tmp_path / str(number)).write_bytes(encoded(cniArgs=arguments))
        os.utime(tmp_path / str(number), (1000, 1000 - number))
    failures = []
    found = CniResultFolders([tmp_path]).read(failures)
    assert sorted(one.pod.pod_name for one in found) == ["p0", "p1"]
    assert [one.reason for one in failures] == ["too_many_files"]
