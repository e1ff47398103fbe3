"""Containers without a container engine: namespaces of their own, a root with only what is mounted, and no rights."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

SCRIPT = """
set -eu
root=$1 user=$2 group=$3 name=$4 capabilities=$5
shift 5
mount --make-rprivate /
mount -t tmpfs -o mode=755 container "$root"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
mkdir -p -m 755 "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for one in bin sbin lib lib64; do
    [ ! -L "/$one" ] || ln -s "$(readlink "/$one")" "$root/$one"
done
[ -z "$name" ] || echo "$name" >/proc/sys/kernel/hostname
chroot=$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)
exec "$chroot" "$root" setpriv --reuid="$user" --regid="$group" --clear-groups --bounding-set="-all$capabilities" \
    --inh-caps="-all$capabilities" --ambient-caps="-all$capabilities" --no-new-privs "$@"
"""

FOLDERS = [Path(one) for one in ("/usr", "/bin", "/sbin", "/lib", "/lib64")]
SYSTEM = [str(one) for one in FOLDERS if one.is_dir() and not one.is_symlink()]
PYTHON = list(dict.fromkeys([sys.base_prefix, sys.prefix, str(ROOT)]))


@dataclass(frozen=True)
class Containers:
    """Starts programs in containers of their own.

    Attributes:
        folder: Folder for their roots.
        program: Finds a program, or skips the test.
    """

    folder: Path
    program: Callable[[str], str]

    def command(
        self,
        command: Sequence[str],
        *,
        user: int,
        group: int = -1,
        mounts: Mapping[str | Path, str],
        name: str = "",
        host: Sequence[str] = (),
        capabilities: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line that runs a command in a container.

        Args:
            command: The command.
            user: User ID.
            group: Group ID; by default that of the user.
            mounts: Folders to mount, and their paths inside, beside those of the system and of Python.
            name: Host name; by default that of the host.
            host: Namespaces of the host, `net` or `pid`, as with hostNetwork and hostPID.
            capabilities: Those that it has, such as `SYS_ADMIN`; another user than root has them as ambient ones.
        """
        root = self.folder / f"root-{len(list(self.folder.glob('root-*')))}"
        root.mkdir()
        own = [f"--{kind}" for kind in ("mount", "pid", "net") if kind not in host] + (["--uts"] if name else [])
        places = {**{one: one for one in (*SYSTEM, *PYTHON) if not one.startswith("/usr/")}, **mounts}
        pairs = [str(one) for place in places.items() for one in place]
        ids = [str(user), str(group if group >= 0 else user)]
        return [
            *(self.program("unshare"), *own, "--fork", "/bin/sh", "-c", SCRIPT, "container"),
            *(str(root), *ids, name, "".join(f",+{one.lower()}" for one in capabilities), *pairs, "--", *command),
        ]


def containers(folder: Path, program: Callable[[str], str]) -> Containers:
    """Return the containers in a folder; skips the test where they are not possible."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program("setpriv")
    made = Containers(folder, program)
    tried = subprocess.run(made.command(["true"], user=65534, mounts={}), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs root that may make namespaces: {tried.stderr.strip()}")
    return made


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of `Containers.command` until the end of the block; its output goes to a file."""
    with log.open("wb") as output:
        one = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield one
        finally:
            # The child of unshare: the first process of the container, with which all others of it end.
            if one.poll() is None:
                for child in Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            one.wait(10)
