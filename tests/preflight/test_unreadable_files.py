"""Files that cannot be read: their objects are unknown, and neither missing nor not applicable."""

import os
import shutil
import subprocess
import sys

import pytest

from exporter.sources.hostcheck.readers import job_processes
from tests.helpers.check_results import one, results_of, words
from tests.helpers.checked_host import ADAPTERS, CheckedHost
from tests.helpers.paths import ROOT
from tests.helpers.stack import own_folder


@pytest.fixture
def host(tmp_path):
    return CheckedHost(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["FIFO", "directory"])
@pytest.mark.parametrize(
    ("file", "checks"),
    [
        ("link_layer", ("roce_gid", "roce_mtu", "infiniband_port", "infiniband_partition")),
        ("state", ("port_rate_siblings", "roce_gid")),
        ("rate", ("port_rate_siblings",)),
    ],
)
def test_a_port_with_a_file_that_cannot_be_read_is_unknown_and_not_missing(host, file, checks, make):
    """Such as a FIFO, which a plain read would wait for."""
    path = host.sysfs / host.function("0000:17:00.0") / "infiniband/mlx5_0/ports/1" / file
    path.unlink()
    make(path)
    found = results_of(host)
    unknown = {check for check, rows in found.items() if ("mlx5_0:1", "unknown") in {row[:2] for row in rows}}
    assert set(checks) <= unknown
    assert [row[1] for row in found["port_rate_siblings"]].count("ok") == 3


@pytest.mark.parametrize("file", ["fw_ver", "board_id"])
def test_an_adapter_whose_firmware_or_board_cannot_be_read_is_unknown(host, file):
    path = host.sysfs / host.function("0000:17:00.0") / "infiniband/mlx5_0" / file
    path.unlink()
    os.mkfifo(path)
    assert one(host, "firmware", "mlx5_0:1")[0] == "unknown"
    assert words(host, "firmware").count("ok") == 3


@pytest.mark.parametrize("text", [None, "", "nonsense"], ids=["FIFO", "empty", "malformed"])
def test_a_routing_table_that_cannot_be_read_is_unknown(host, text):
    path = host.procfs / "net/route"
    path.unlink()
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text)
    assert words(host, "arp_of_rails") == ["unknown"] * 4


def test_a_routing_table_without_the_rails_is_not_unknown(host):
    (host.procfs / "net/route").write_text("Iface\tDestination\tGateway\n")
    assert words(host, "arp_of_rails") == ["not_applicable"]


def test_numa_balancing_that_cannot_be_read_is_unknown_and_one_that_the_kernel_lacks_is_not(host):
    file = host.procfs / "sys/kernel/numa_balancing"
    file.unlink()
    assert words(host, "numa_balancing") == ["not_applicable"]
    os.mkfifo(file)
    assert words(host, "numa_balancing") == ["unknown"]
    file.unlink()
    file.write_text("nonsense\n")
    assert words(host, "numa_balancing") == ["unknown"]
    shutil.rmtree(host.procfs / "sys")
    assert words(host, "numa_balancing") == ["unknown"], "as without /proc/sys nothing is known"


def test_a_governor_that_cannot_be_read_is_unknown(host):
    os.mkfifo(host.sysfs / "devices/system/cpu/cpu0/cpufreq/scaling_max_freq")
    assert words(host, "cpu_governor") == ["ok"]
    (host.sysfs / "devices/system/cpu/cpu1/cpufreq").mkdir(parents=True)
    os.mkfifo(host.sysfs / "devices/system/cpu/cpu1/cpufreq/scaling_governor")
    assert words(host, "cpu_governor") == ["unknown"]


@pytest.mark.parametrize("check", ["infiniband_port", "infiniband_subnet_manager", "infiniband_partition"])
def test_an_infiniband_port_whose_state_cannot_be_read_is_unknown(host, check):
    for device in ADAPTERS:
        host.port(device, link_layer="InfiniBand", sm_lid="0x1", gids__0="fe80::1")
    host.port("mlx5_0", state="nonsense")
    assert one(host, check, "mlx5_0:1")[0] == "unknown"


each_process_check = pytest.mark.parametrize("check", ["locked_memory", "nccl_variables", "nccl_variables_alike"])


@each_process_check
def test_more_processes_of_jobs_than_are_read_are_unknown_beside_those_that_are(host, monkeypatch, check):
    monkeypatch.setattr(job_processes, "MAX_JOB_PROCESSES", 2)
    for pid in (4243, 4244):
        host.process(pid, RANK="1", WORLD_SIZE="8", SLURM_JOB_ID="77")
    found = {result: evidence for _, result, evidence, _ in results_of(host)[check]}
    assert found["unknown"] == "2 of 3 processes of jobs are read"
    assert "ok" in found


@each_process_check
def test_more_processes_than_are_read_are_unknown(host, monkeypatch, check):
    monkeypatch.setattr(job_processes, "MAX_PROCESSES", 3)
    for pid in (1, 2, 3):
        host.process(pid, TERM="linux")
    assert [row[1:3] for row in results_of(host)[check]] == [("unknown", "3 of 4 processes are read")]


@each_process_check
def test_processes_of_other_users_are_unknown_beside_own_ones(host, monkeypatch, check):
    host.process(4243, RANK="1", WORLD_SIZE="8", SLURM_JOB_ID="78")
    read = job_processes.read_untrusted

    def denied(path, limit):
        if path.endswith("4243/environ"):
            raise PermissionError
        return read(path, limit)

    monkeypatch.setattr(job_processes, "read_untrusted", denied)
    assert sorted(words(host, check)) == ["ok", "unknown"]


READ_AS_NOBODY = """
import ctypes, os, sys
from pathlib import Path
from exporter.sources.hostcheck.readers.job_processes import read_job_processes
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its own environment is readable, as that of a program of this user
print(read_job_processes(Path(sys.argv[1])).unread)
"""


@pytest.mark.parametrize(
    ("options", "unread"), [("hidepid=2", job_processes.HIDDEN), ("hidepid=0", job_processes.UNREADABLE)]
)
def test_processes_that_procfs_hides_are_unknown(program, options, unread):
    """As the kernel does it: the processes of other users are not listed at all."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    mount = 'mount -t proc -o "$1" proc "$2" || exit 9; exec "$3" -c "$4" "$2"'
    with own_folder() as folder:
        folder.chmod(0o755)
        command = [program("unshare"), "--mount", "/bin/sh", "-c", mount, "mount", options, str(folder)]
        words = [*command, sys.executable, READ_AS_NOBODY]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 9 or "unshare failed" in done.stderr:
        pytest.skip(f"needs root that may mount procfs: {done.stderr.strip()}")
    assert (done.stdout.strip(), done.stderr) == (unread, "")
