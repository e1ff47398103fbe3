"""Identity of a process: job, rank, PIDs, GPU and nearest NIC."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.source import Host
from exporter.linux.cgroup import Owner
from exporter.sources.nccl.gpu_affinity import nearest_devices, pci_address_of, port_names
from exporter.sources.nccl.identity import (
    MAX_NAME,
    find_processes,
    job_of,
    only_gpu,
    parse_environment,
    read_identity,
    world_rank,
)
from exporter.sources.nccl.process_lookup import look_up_processes
from exporter.sources.nccl.readers.feed import ProcessFacts
from tests.helpers.training_bench import process

POD = "1b2c3d4e-0000-4111-8222-33344455aabb"
IN_POD = Owner(pod=POD)
SLURM_STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3"


@pytest.mark.parametrize(
    ("environment", "owner", "folder", "pod", "job"),
    [
        ({"SLURM_JOB_ID": "5"}, Owner(), "", "", "5"),
        ({"SLURM_JOB_ID": "5", "TORCHELASTIC_RUN_ID": "r"}, Owner(), "", "", "5"),
        ({"TORCHELASTIC_RUN_ID": "run-7"}, Owner(), "", "", "run-7"),
        ({"TORCHELASTIC_RUN_ID": "none"}, Owner(), "", "", "unknown"),  # torchrun's default
        ({"JOBSET_NAME": "llama"}, IN_POD, "", "llama-workers-0-3-x7k2p", "llama"),
        ({"FABRIC_TIMING_JOB": "mine", "SLURM_JOB_ID": "5"}, Owner(), "", "", "mine"),
        ({"SLURM_JOB_ID": "5"}, Owner(job="4711"), "", "", "4711"),  # the control group takes precedence
        ({"SLURM_JOB_ID": "5"}, Owner(job="4711"), "llama", "", "llama"),  # the folder takes precedence
        ({}, IN_POD, "", "llama-worker-12", "llama"),  # PyTorchJob, MPIJob
        ({}, IN_POD, "", "my-llama-master-0", "my-llama"),
        ({}, IN_POD, "", "pi-launcher-x7k2p", "pi"),
        ({}, IN_POD, "", "pi-launcher", "pi"),
        ({}, IN_POD, "", "llama-workers-0-3-x7k2p", "llama-workers"),  # JobSet: its name and the replicated job's
        ({}, IN_POD, "", "indexed-3-x7k2p", "indexed"),
        ({}, IN_POD, "", "llama-workers-0-3", "llama-workers"),  # the host name of a pod of an indexed Job
        ({}, IN_POD, "", "indexed-3", "indexed"),
        ({"POD_NAME": "llama-worker-1"}, IN_POD, "", "node-17", "llama"),  # on the network of the host
        ({}, IN_POD, "", "web-7d9f8b6c5-aeiou", POD),  # no known pattern
        ({}, Owner(), "", "llama-worker-12", "unknown"),  # may be a host name
        ({}, Owner(), "", "", "unknown"),
    ],
)
def test_job_name_is_that_of_the_launcher(environment, owner, folder, pod, job):
    assert job_of(environment, owner, folder, pod) == job


@given(st.dictionaries(st.sampled_from(["SLURM_JOB_ID", "POD_NAME"]), st.text()), st.text(), st.text())
def test_job_name_is_bounded(environment, folder, pod):
    name = job_of(environment, IN_POD, folder, pod)
    assert 0 < len(name) <= MAX_NAME


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "7", "SLURM_PROCID": "1"}, 7),  # torchrun below srun
        ({"SLURM_PROCID": "12"}, 12),
        ({"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "4"}, 3),
        ({"PMIX_RANK": "4"}, 4),
        ({"RANK": "x", "SLURM_PROCID": "2"}, 2),
        ({"RANK": "-1"}, None),
        ({"RANK": "99999999"}, None),
        ({}, None),
    ],
)
def test_rank_is_that_of_the_innermost_launcher(environment, rank):
    assert world_rank(environment) == rank


UUID = "GPU-8f0c1d2e-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("environment", "gpu"),
    [
        ({"CUDA_VISIBLE_DEVICES": UUID}, UUID),
        ({"NVIDIA_VISIBLE_DEVICES": UUID}, UUID),
        ({"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": UUID}, UUID),
        ({"CUDA_VISIBLE_DEVICES": f"{UUID},{UUID}"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "3"}, ""),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ""),
        ({}, ""),
    ],
)
def test_gpu_is_known_if_only_one_is_visible(environment, gpu):
    assert only_gpu(environment) == gpu


def test_only_needed_environment_variables_are_read():
    data = b"AWS_SECRET=hunter2\0RANK=3\0SLURM_JOB_ID=5\nx\0POD_NAME=p\xff\0JOBSET_NAME=" + b"j" * 500 + b"\0HOSTNAME=h"
    assert parse_environment(data) == {"RANK": "3", "HOSTNAME": "h"}


@given(st.binary())
def test_any_environment_is_parsed(data):
    parse_environment(data)


def test_identity_is_read_from_procfs(tmp_path):
    process(tmp_path, 900, inner=17, cgroup=SLURM_STEP, environment={"RANK": "3", "TOKEN": "x"})
    known = read_identity(tmp_path, 900)
    assert (known.pid, known.owner.job, known.environment) == (17, "4711", {"RANK": "3"})


def test_unreadable_files_are_unknown(tmp_path):
    process(tmp_path, 900, inner=17, cgroup=SLURM_STEP)
    (tmp_path / "900" / "environ").mkdir()  # which root cannot read either
    known = read_identity(tmp_path, 900)
    assert (known.pid, known.owner.job, known.environment) == (17, "4711", {})
    assert read_identity(tmp_path, 901).pid == 0


def test_process_is_found_by_inner_pid_and_user_if_unambiguous(tmp_path):
    process(tmp_path, 900, inner=17, uid=1000)
    process(tmp_path, 901, inner=17, uid=1001)
    process(tmp_path, 902, inner=18, uid=1000)
    process(tmp_path, 903, inner=18, uid=1000)
    process(tmp_path, os.getpid(), inner=19, uid=1000)
    (tmp_path / "self").mkdir()
    (tmp_path / "904").mkdir()
    wanted = {(17, 1000), (18, 1000), (19, 1000), (20, 1000)}
    assert find_processes(tmp_path, wanted) == {(17, 1000): 900}


def test_no_process_is_found_without_procfs(tmp_path):
    assert find_processes(tmp_path / "none", {(1, 1)}) == {}


def resolved(tmp_path, facts):
    (found,) = look_up_processes(Host("h", tmp_path / "sys", tmp_path / "proc"), [facts])
    return found


def test_inspector_file_is_matched_to_its_process(tmp_path):
    process(tmp_path / "proc", 900, inner=17, uid=1000, cgroup=SLURM_STEP, environment={"SLURM_PROCID": "9"})
    found = resolved(tmp_path, ProcessFacts("unknown", pid=17, uid=1000))
    assert (found.job, found.host_pid, found.world_rank) == ("4711", 900, 9)


def test_process_of_another_job_with_the_same_pid_is_not_matched(tmp_path):
    process(tmp_path / "proc", 900, inner=17, uid=1000, cgroup=SLURM_STEP, environment={"RANK": "9"})
    found = resolved(tmp_path, ProcessFacts("4712", folder="4712", pid=17, uid=1000))
    assert (found.job, found.host_pid, found.world_rank) == ("4712", 0, None)
    found = resolved(tmp_path, ProcessFacts("4711", folder="4711", pid=17, uid=1000))
    assert (found.job, found.host_pid, found.world_rank) == ("4711", 900, 9)


def test_pid_of_the_credentials_takes_precedence(tmp_path):
    process(tmp_path / "proc", 900, inner=17)
    assert resolved(tmp_path, ProcessFacts("j", pid=4, host_pid=900)).pid == 17


# --- GPU and NIC


def pci_tree(sysfs):
    """Create two PCIe switches with a GPU each: one has a single-port NIC, one a dual-port NIC; and one more NIC."""
    devices = sysfs / "devices"
    (sysfs / "bus" / "pci" / "devices").mkdir(parents=True)
    (sysfs / "class" / "infiniband").mkdir(parents=True)

    def function(way, rdma=""):
        folder = devices / way
        folder.mkdir(parents=True)
        (sysfs / "bus" / "pci" / "devices" / folder.name).symlink_to(folder)
        if rdma:
            device = folder / "infiniband" / rdma
            device.mkdir(parents=True)
            (device / "device").symlink_to(folder)
            (sysfs / "class" / "infiniband" / rdma).symlink_to(device)
        return folder

    function("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0")  # GPU
    function("pci0000:16/0000:16:01.0/0000:17:01.0/0000:19:00.0", "mlx5_0")
    function("pci0000:16/0000:16:02.0/0000:1c:00.0", "mlx5_9")
    function("pci0000:c0/0000:c0:01.0/0000:c7:00.0/0000:c8:00.0")  # GPU
    function("pci0000:c0/0000:c0:01.0/0000:c7:01.0/0000:c9:00.0", "mlx5_10")
    function("pci0000:c0/0000:c0:01.0/0000:c7:01.0/0000:c9:00.1", "mlx5_2")
    virtual = function("pci0000:c0/0000:c0:01.0/0000:c7:01.0/0000:c9:00.2", "mlx5_3")
    (virtual / "physfn").symlink_to(virtual.parent / "0000:c9:00.0")
    function("pci0000:e0/0000:e1:00.0")  # a GPU without a common bridge


@pytest.mark.parametrize(
    ("gpu", "nics"),
    [
        ("0000:18:00.0", ["mlx5_0"]),
        ("0000:c8:00.0", ["mlx5_10", "mlx5_2"]),
        ("0000:e1:00.0", []),
        ("0000:ff:00.0", []),
        ("../../class", []),
        ("GPU-1d6f", []),
        ("", []),
    ],
)
def test_nearest_nic_is_behind_the_same_pcie_switch(tmp_path, gpu, nics):
    pci_tree(tmp_path)
    assert nearest_devices(tmp_path, gpu) == nics


def test_gpu_uuid_is_resolved_with_the_driver(tmp_path):
    folder = tmp_path / "driver" / "nvidia" / "gpus" / "0000:c8:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-8f0c1d2e-1111-2222-3333-444455556666\n"
    )
    assert pci_address_of("8f0c1d2e-1111-2222-3333-444455556666", tmp_path) == "0000:c8:00.0"
    assert pci_address_of("GPU-8F0C1D2E-1111-2222-3333-444455556666", tmp_path) == "0000:c8:00.0"
    assert pci_address_of("GPU-00000000-1111-2222-3333-444455556666", tmp_path).startswith("GPU-0000")
    assert pci_address_of("", tmp_path) == ""
    assert pci_address_of("00000000:C8:00.0", tmp_path / "none") == "0000:c8:00.0"
    assert pci_address_of("GPU-1", tmp_path / "none") == "GPU-1"


def test_lookup_adds_the_nearest_nic_of_the_gpu(tmp_path):
    pci_tree(tmp_path / "sys")
    found = resolved(tmp_path, ProcessFacts("j", gpu="0000:c8:00.0"))
    assert (found.gpu, found.nic) == ("0000:c8:00.0", "mlx5_10,mlx5_2")
    addresses = {
        name: (tmp_path / "sys/class/infiniband" / name / "device").resolve().name for name in ("mlx5_10", "mlx5_2")
    }
    assert found.ports == ",".join(f"{name}:1={address}" for name, address in addresses.items())


def test_port_has_all_its_names(tmp_path):
    pci_tree(tmp_path)
    device = tmp_path / "class" / "infiniband" / "mlx5_2" / "device"
    for name in ("ens1f0np0", "ens1f0r1"):
        (device / "net" / name).mkdir(parents=True)
    assert port_names(tmp_path, "mlx5_2") == f"mlx5_2:1=ens1f0np0=ens1f0r1={device.resolve().name}"
    assert port_names(tmp_path, "none") == "none:1"
    for name in ("ens1é", "a,b", "a=b"):
        (device / "net" / name).mkdir()
    assert port_names(tmp_path, "mlx5_2") == f"mlx5_2:1=ens1f0np0=ens1f0r1={device.resolve().name}"


READ_AS_OTHER_USER = """
import os, sys
from pathlib import Path
from exporter.sources.nccl.identity import read_identity
os.setgroups([]); os.setgid(65534); os.setuid(65534)
known = read_identity(Path("/proc"), int(sys.argv[1]))
print(known.pid, dict(known.environment))
"""


def test_environment_of_another_user_is_unknown_without_the_capability():
    if os.getuid() != 0:
        pytest.skip("needs root")
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    environment = {**os.environ, "RANK": "3"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        job.stdout.readline()
        assert read_identity(Path("/proc"), job.pid).environment["RANK"] == "3"
        result = subprocess.run(
            [sys.executable, "-c", READ_AS_OTHER_USER, str(job.pid)], capture_output=True, text=True, check=True
        )
        job.stdin.close()
    number, variables = result.stdout.split(maxsplit=1)
    assert int(number) > 0, "its PID is world-readable"
    assert variables.strip() == "{}"
