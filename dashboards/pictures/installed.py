"""The programs that pictures need, and the page that is built with them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

from exporter.config.errors import UserError
from exporter.simulator.monitoring.stack import Installed

FOLDER = Path(__file__).resolve().parent

OLDEST_NODE = 20

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"""Names of the program, by system."""

PACKAGES = {
    "node": "nodejs",
    "npm": "npm",
    "chromium": "chromium",
    "prometheus": "prometheus",
    "mosquitto": "mosquitto",
}
"""Debian package of each program."""

STAMP = ".made-of"
"""File with the hash of what a folder was made of."""


class Programs(NamedTuple):
    """Paths of the programs that are started here; a cluster finds its own."""

    node: str
    npm: str
    chromium: str

    @classmethod
    def find(cls) -> Self:
        """Find the programs.

        Raises:
            UserError: One is missing, or too old.
        """
        of_clusters = Installed.find()
        found = {
            "node": shutil.which("node"),
            "npm": shutil.which("npm"),
            "chromium": next(filter(None, map(shutil.which, CHROMIUM)), None),
            "prometheus": of_clusters.prometheus,
            "mosquitto": of_clusters.mosquitto,
        }
        if missing := [name for name, path in found.items() if not path]:
            packages = " ".join(PACKAGES[name] for name in missing)
            raise UserError(
                f"not installed: {', '.join(missing)}, which pictures need; on Debian: apt-get install {packages}"
            )
        one = cls(found["node"] or "", found["npm"] or "", found["chromium"] or "")
        _check_version(one.node)
        return one


def _check_version(node: str) -> None:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    written = done.stdout.strip()
    version = re.match(r"v(\d+)\.", written)
    if version is None or int(version[1]) < OLDEST_NODE:
        raise UserError(f"{node} has the version {written or 'unknown'}: install {OLDEST_NODE} or newer")


def build_page(programs: Programs) -> None:
    """Install the locked packages of npm and build the page, where they are not up to date.

    Raises:
        UserError: That failed.
    """
    lock = [FOLDER / "package-lock.json", FOLDER / "package.json"]
    sources = [FOLDER / "vite.config.js", *sorted((FOLDER / "page").iterdir())]
    npm = (programs.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    vite = (programs.node, "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn")
    _make(FOLDER / "node_modules", npm, lock, "installing packages of npm, 490 MB")
    _make(FOLDER / "dist", vite, [*lock, *sources], "building the page")


def _make(folder: Path, command: tuple[str, ...], sources: Iterable[Path], what: str) -> None:
    """Run a command that makes a folder, unless it was made of the same files."""
    made_of = sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text(encoding="ascii") == made_of:
        return
    sys.stderr.write(f"{what}\n")
    done = subprocess.run(command, cwd=FOLDER, check=False, stdout=sys.stderr)  # noqa: S603  # commands of build_page
    if done.returncode:
        raise UserError(f"`{' '.join(command)}` failed in {FOLDER}; its output is above")
    stamp.write_text(made_of, encoding="ascii")
