"""Names below /var/log/pods, as kubelet makes them (pkg/kubelet/kuberuntime: BuildPodLogsDirectory)."""

import pytest

from exporter.sources.pods import pod_log_folders
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_log_folders import pod_of_folder, read_log_folders

UID = "0d9c9b5e-6d2c-4d5c-9c39-2f4f0a1f8a11"
STATIC = "8bdbc2e0b6a5a1de0b5d9e1d0a7dd0f1"
"""UID of a static pod: a hash of its manifest."""


def test_a_folder_names_a_pod():
    name = f"kube-system_kube-proxy-x7.y_{UID}"
    assert pod_of_folder(name) == PodOwner("kube-system", "kube-proxy-x7.y", UID)
    assert pod_of_folder(f"kube-system_etcd-node1_{STATIC}") == PodOwner("kube-system", "etcd-node1", STATIC)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "a_b",
        "a_b_",
        "__",
        "_b_c",
        "a__c",
        f"a_b_c_{UID}",
        "A_b_c",
        "a_b_c d",
        "a_b\n_c",
        "a_" + "b" * 254 + "_c",
    ],
)
def test_other_names_are_of_no_pod(name):
    assert pod_of_folder(name) is None


def test_folders_are_read_and_nothing_else(tmp_path):
    (tmp_path / f"training_worker-0_{UID}").mkdir()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f"training_file_{STATIC}").touch()
    (tmp_path / "training_link_0123").symlink_to(tmp_path)
    failures = []
    assert read_log_folders(tmp_path, failures) == {UID: PodOwner("training", "worker-0", UID)}
    assert read_log_folders(tmp_path / "missing", failures) == {}
    assert failures == []


def test_too_many_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(pod_log_folders, "MAX_ENTRIES", 2)
    for number in range(3):
        (tmp_path / f"n_p_{number}").mkdir()
    failures = []
    assert len(read_log_folders(tmp_path, failures)) == 2
    assert [one.reason for one in failures] == ["too_many_files"]
