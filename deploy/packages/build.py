"""Build the Debian package: `python deploy/packages/build.py`, or `make package`.

The package has the exporter and the Python packages of requirements.txt in a virtual environment of its own, below
/usr/lib/fabric-exporter, whose interpreter is that of the distribution. Extension modules and bytecode are for one
minor version of Python and one architecture: build it on the distribution of the hosts. Files are the same for the same
checkout, interpreter and SOURCE_DATE_EPOCH.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

import manual

from exporter import __version__, cli

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parent
ROOT = DEPLOY.parent

REVISION = 1
"""Version of the package for one version of the exporter; raise it for a change of the packaging alone."""

HOME = "usr/lib/fabric-exporter"
"""The virtual environment."""

COPIES: Mapping[str, Path] = {
    "etc/default/fabric-exporter": HERE / "default",
    "etc/fabric-exporter/config.yml": HERE / "config.yml",
    "usr/bin/fabric-exporter": HERE / "fabric-exporter",
    "usr/lib/tmpfiles.d/fabric-exporter.conf": DEPLOY / "systemd" / "fabric-exporter.tmpfiles",
    "usr/share/bash-completion/completions/fabric-exporter": DEPLOY / "completions" / "fabric-exporter.bash",
    "usr/share/zsh/vendor-completions/_fabric-exporter": DEPLOY / "completions" / "_fabric-exporter",
    "usr/share/fabric-exporter/example.yml": ROOT / "docs" / "example.yml",
    "usr/share/fabric-exporter/timing.conf": DEPLOY / "systemd" / "timing.conf",
    **{
        f"usr/share/fabric-exporter/slurm/{path.name}": path
        for path in sorted((DEPLOY / "slurm").iterdir())
        if path.is_file()
    },
}
"""Files of the checkout by their places in the package."""

PROGRAMS = ("usr/bin/fabric-exporter", "usr/share/fabric-exporter/slurm/*.sh", "DEBIAN/p*")
"""Patterns of the files that can be executed."""


def main() -> None:
    """Build the package and print its path."""
    parser = argparse.ArgumentParser(description="Build the Debian package of fabric-exporter.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR", help="folder of the package")
    parser.add_argument(
        "--python",
        default="/usr/bin/python3",
        metavar="PATH",
        help="interpreter of the hosts' distribution, 3.11 or newer (default /usr/bin/python3)",
    )
    arguments = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(time.time())))
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fabric-exporter-package-") as name:
        print(build(Path(name), _interpreter(arguments.python), arguments.output))  # noqa: T201


def build(work: Path, python: Path, output: Path) -> Path:
    """Build the package in an empty folder and return its path.

    Args:
        work: Folder for its parts.
        python: The interpreter of the hosts, such as /usr/bin/python3.11.
        output: Folder of the package.
    """
    root = work / "root"
    packages = _bundle(root, python, _wheel(work / "wheel"))
    for target, source in COPIES.items():
        _put(root, target, source.read_bytes())
    unit = (DEPLOY / "systemd" / "fabric-exporter.service").read_text(encoding="utf-8")
    _put(root, "usr/lib/systemd/system/fabric-exporter.service", _with_program(unit).encode())
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    _put(root, "usr/share/man/man1/fabric-exporter.1.gz", _zip(manual.page(cli.parser(), __version__, seconds)))
    version = f"{__version__}-{REVISION}+py{python.name.removeprefix('python')}"  # a package for each version of Python
    fields = {
        "version": version,
        "architecture": _output("dpkg", "--print-architecture"),
        "maintainer": os.environ.get("DEBEMAIL", "fabric-exporter <root@localhost>"),
        "python": python.name.removeprefix("python"),
        "libc": _oldest_libc(packages),
    }
    _document(root, packages, fields, seconds)
    _describe(root, fields)
    _set_modes(root)
    path = output / f"fabric-exporter_{version}_{fields['architecture']}.deb"
    _run("dpkg-deb", "-Zxz", "--root-owner-group", "--build", root, path)
    return path


def _interpreter(path: str) -> Path:
    """Return the interpreter by the name of its minor version, which a newer version of the distribution replaces.

    Raises:
        SystemExit: It is older than 3.11, or has no such name.
    """
    minor = _output(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    found = Path(path).with_name(f"python{minor}")
    if tuple(map(int, minor.split("."))) < (3, 11) or not found.exists():
        sys.exit(f"error: {path} is Python {minor}; --python needs one of 3.11 or newer with {found} beside it")
    return found


# --- the virtual environment


def _wheel(folder: Path) -> Path:
    """Build the wheel of a copy, since a build in the checkout would add files that earlier builds left there."""
    source = folder / "source"
    shutil.copytree(ROOT / "exporter", source / "exporter", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    (made,) = folder.glob("*.whl")
    return made


def _bundle(root: Path, python: Path, wheel: Path) -> Path:
    """Install the wheel and its requirements, all by hash, and return the folder of packages."""
    packages = root / HOME / "lib" / python.name / "site-packages"
    own = wheel.with_name("own.txt")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    own.write_text(f"fabric-exporter=={__version__} --hash=sha256:{digest}\n", encoding="utf-8")
    _pip(
        *(
            "--python",
            python,
            "install",
            "--root-user-action=ignore",
            "--target",
            packages,
            "--no-compile",
            "--require-hashes",
        ),
        *("--only-binary=:all:", "--find-links", wheel.parent, "-r", ROOT / "requirements.txt", "-r", own),
    )
    shutil.rmtree(packages / "bin", ignore_errors=True)  # commands of the packages, which nothing needs
    compiled = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/")
    _run(python, *compiled, packages)
    link = root / HOME / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(python)
    settings = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {python.name[6:]}\n"
    _put(root, f"{HOME}/pyvenv.cfg", settings.encode())
    return packages


def _oldest_libc(packages: Path) -> str:
    """Return the oldest glibc that all wheels allow, by their tags (PEP 600)."""
    found = []
    for path in packages.glob("*.dist-info/WHEEL"):
        tags = re.findall(r"^Tag: \S+manylinux_2_(\d+)_", path.read_text(encoding="utf-8"), re.MULTILINE)
        found += [min(map(int, tags))] if tags else []
    return f"2.{max(found)}"


# --- the other files


def _with_program(unit: str) -> str:
    """Return the unit with the program of the package."""
    changed = unit.replace("=/opt/fabric-exporter/bin/fabric-exporter ", "=/usr/bin/fabric-exporter ")
    if changed == unit:
        raise ValueError("the unit does not start /opt/fabric-exporter/bin/fabric-exporter")
    return changed


def _document(root: Path, packages: Path, fields: Mapping[str, str], seconds: int) -> None:
    """Add licences and changelogs."""
    folder = "usr/share/doc/fabric-exporter"
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    entry = (
        f"fabric-exporter ({fields['version']}) unstable; urgency=medium\n\n"
        f"  * Version {__version__}; its changes are in changelog.gz.\n\n -- {fields['maintainer']}  {date}\n"
    )
    _put(root, f"{folder}/changelog.Debian.gz", _zip(entry))
    _put(root, f"{folder}/changelog.gz", _zip((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    _put(root, f"{folder}/copyright", "\n".join(_licences(root, packages)).encode())


def _licences(root: Path, packages: Path) -> Iterator[str]:
    """Yield the lines of the file of licences."""
    yield "fabric-exporter is licensed under Apache-2.0: /usr/share/common-licenses/Apache-2.0."
    yield f"\nThe package has these Python packages; their texts are in /{packages.relative_to(root)}"
    yield "in the folders *.dist-info:\n"
    for one in sorted(distributions(path=[str(packages)]), key=lambda one: one.name.lower()):
        if one.name != "fabric-exporter":
            yield f"{one.name} {one.version}: {_licence(one)}"
    yield ""


def _licence(one: Distribution) -> str:
    """Return the licence of a distribution by its metadata: an expression, a short text, classifiers, or its files."""
    names = ("License-Expression", "License", "Classifier", "License-File")
    expression, texts, classifiers, files = (one.metadata.get_all(name) or [] for name in names)
    stated = expression or [text for text in texts if "\n" not in text]
    stated = stated or [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")]
    if not stated and not files:
        raise ValueError(f"the metadata of {one.name} {one.version} has no licence")
    return ", ".join(stated or [f"see {file}" for file in files])


def _describe(root: Path, fields: Mapping[str, str]) -> None:
    """Add what dpkg reads: fields, scripts, configuration files and checksums."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files) // 1024
    control = string.Template((HERE / "debian" / "control").read_text(encoding="utf-8"))
    _put(root, "DEBIAN/control", control.substitute(fields, size=size).encode())
    _put(root, "DEBIAN/conffiles", b"".join(f"/{name}\n".encode() for name in COPIES if name.startswith("etc/")))
    fixed = [path for path in files if not path.is_relative_to(root / "etc")]
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in fixed]  # noqa: S324
    _put(root, "DEBIAN/md5sums", "".join(sums).encode())
    for name in ("postinst", "prerm", "postrm"):
        _put(root, f"DEBIAN/{name}", (HERE / "debian" / name).read_bytes())


# --- files and programs


def _put(root: Path, target: str, data: bytes) -> None:
    path = root / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _zip(text: str) -> bytes:
    """Compress a text without a date."""
    return gzip.compress(text.encode(), mtime=0)


def _set_modes(root: Path) -> None:
    """Set the modes of all files, whatever the umask and the wheels have."""
    programs = {path for pattern in PROGRAMS for path in root.glob(pattern)}
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs else 0o644)


def _pip(*words: str | Path) -> None:
    _run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def _run(*words: str | Path) -> None:
    subprocess.run([*map(str, words)], check=True, stdout=sys.stderr)  # noqa: S603


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
