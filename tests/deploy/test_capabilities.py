"""What each capability of docs/security.md buys, in containers: with it the thing works, without it the kernel refuses.

Another user than root has it as an ambient capability, as by systemd's AmbientCapabilities.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.containers import Containers, containers
from tests.helpers.paths import ROOT
from tests.helpers.unprivileged import NOBODY

OPTICS = """
from exporter.linux.nic_reader import KernelNic
KernelNic(with_events=False).module_page("lo", page=0, bank=0, offset=0, length=1)
"""

NOTIFICATIONS = """
import socket
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as one:
    one.setsockopt(socket.SOL_SOCKET, 33, 1 << 20)  # SO_RCVBUFFORCE of asm-generic/socket.h
"""

LLDP = """
from exporter.linux.lldp.packet_socket import LldpSocket
LldpSocket().close()
"""

TRAPS = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 162))
"""

ENVIRONMENT = """
import pathlib, sys
from exporter.sources.nccl.identity import read_identity
if read_identity(pathlib.Path("/host/proc"), int(sys.argv[1])).environment.get("RANK") != "3":
    raise PermissionError(13, "unknown")
"""

PROCESSES = """
import pathlib, sys
from exporter.sources.pods.container_cgroups import namespace_id, pods_of_namespaces
procfs, failures = pathlib.Path("/host/proc"), []
found = pods_of_namespaces(procfs, failures)
namespace = namespace_id(procfs / sys.argv[1] / "ns/net")
assert namespace in found, found
"""

PCI = """
import glob
data = open(sorted(glob.glob("/sys/bus/pci/devices/*/config"))[0], "rb", buffering=0).read(256)
if len(data) <= 64:
    raise PermissionError(13, "64 bytes")
"""

ENTRY = """
import socket, sys
from exporter.linux.network_namespaces import in_namespaces, namespace_key
path = f"/host/netns/{sys.argv[2]}"
(found,) = in_namespaces({namespace_key(path): path}, socket.if_nameindex, "test").values()
if isinstance(found, Exception):
    raise found
assert [name for _, name in found] == ["lo"], found
"""

BUYS = {
    "CAP_NET_ADMIN": [OPTICS, NOTIFICATIONS],
    "CAP_NET_RAW": [LLDP],
    "CAP_NET_BIND_SERVICE": [TRAPS],
    "CAP_SYS_PTRACE": [PROCESSES],
    "CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH": [ENVIRONMENT],
    "CAP_SYS_ADMIN": [PCI, ENTRY],
}
"""Programs that need one or two capabilities, for each row of the table: they raise PermissionError without."""

EACH = [
    pytest.param(name, code, id=f"{name}-{place}") for name, codes in BUYS.items() for place, code in enumerate(codes)
]


@pytest.fixture
def made(tmp_path: Path, program) -> Containers:
    program("setpriv")
    return containers(tmp_path, program)


@pytest.fixture
def namespace(tmp_path: Path, made: Containers, program):
    """Give the file of a network namespace that has a name, as a container runtime makes them."""
    folder = tmp_path / "netns"
    folder.mkdir()
    file = folder / "cni-1"
    file.touch()
    subprocess.run([program("unshare"), f"--net={file}", "true"], check=True)
    yield file
    subprocess.run([program("umount"), file], check=True)


@pytest.fixture
def process(made: Containers, program):
    """Give the PID of a process of another user, with a variable of a rank, in a network namespace without a name."""
    user = ["setpriv", "--reuid=4101", "--regid=4101", "--clear-groups"]
    command = [program("unshare"), "--net", *user, "sleep", "300"]
    with subprocess.Popen(command, env={"RANK": "3", "PATH": os.environ["PATH"]}) as one:
        while Path(f"/proc/{one.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        yield one.pid
        one.kill()


def outcome(made: Containers, code: str, process: int, namespace: Path, user: int, *capabilities: str) -> str:
    """Run a program in a container; return `done`, or the name of the exception that ended it."""
    command = made.command(
        [sys.executable, "-c", code, str(process), namespace.name],
        user=user,
        mounts={"/proc": "/host/proc", "/sys": "/sys", namespace.parent: "/host/netns"},
        host=["net"],
        capabilities=capabilities,
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return "done" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def names_in(cell: str) -> list[str]:
    return [one.removeprefix("CAP_") for one in cell.split(", ")]


def is_refused(text: str) -> bool:
    return text.startswith("PermissionError")


def test_the_table_has_these_capabilities_and_no_others() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    assert re.findall(r"^\| (CAP_[\w, ]+) \|", page, re.MULTILINE) == list(BUYS)


@pytest.mark.parametrize(("name", "code"), EACH)
def test_a_capability_buys_what_the_table_says(
    made: Containers, process: int, namespace: Path, name: str, code: str
) -> None:
    needed = names_in(name)
    every = {one for each in BUYS for one in names_in(each)}
    if code is ENVIRONMENT:
        every.discard("SYS_ADMIN")  # newer kernels let it read the memory of others (perfmon_capable)
    assert is_refused(outcome(made, code, process, namespace, NOBODY))
    for one in needed:
        assert is_refused(outcome(made, code, process, namespace, NOBODY, *(every - {one})))
    with_it = outcome(made, code, process, namespace, NOBODY, *needed)
    # `lo` has no module: the kernel answers so to those alone who may ask.
    assert with_it == "done" or (code is OPTICS and re.match(r"OSError: \[Errno 95\]", with_it)), with_it


def test_root_without_capabilities_reads_what_only_root_may(made: Containers, tmp_path: Path) -> None:
    """The folder of libcni's results has the mode 0700, and its files 0600 (libcni/api.go)."""
    folder = tmp_path / "results"
    folder.mkdir(mode=0o700)
    (folder / "a").write_text("{")
    (folder / "a").chmod(0o600)
    code = """
import pathlib
from exporter.sources.pods.cni_results import CniResultFolders
failures = []
CniResultFolders([pathlib.Path("/results")]).read(failures)
print(*(one.reason for one in failures))
"""
    found = {}
    for user in (0, NOBODY):
        command = made.command([sys.executable, "-c", code], user=user, mounts={folder: "/results"})
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[user] = done.stdout.strip()
    assert found == {0: "malformed", NOBODY: "eacces"}
