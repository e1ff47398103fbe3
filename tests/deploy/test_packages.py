"""The Debian package: what is in it, and that it installs, runs as its unit starts it, and is removed.

The package is built once, for the Python of this machine's distribution, and installed into a folder of its own.
"""

import argparse
import ctypes
import gzip
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from exporter import __version__, cli
from tests.helpers.containers import Containers, containers, running
from tests.helpers.kubernetes_objects import check_configuration, check_flags
from tests.helpers.paths import ROOT
from tests.helpers.stack import answers, free_port, own_folder

FOLDER = ROOT / "deploy" / "packages"
SCRIPTS = ("postinst", "prerm", "postrm")
README = (ROOT / "deploy" / "README.md").read_text()
CONFIGURATION = ("/etc/default/fabric-exporter", "/etc/fabric-exporter/config.yml")
UNIT = "usr/lib/systemd/system/fabric-exporter.service"
DATE = "1790000000"
NOBODY = 65534

PR_SET_MDWE, PR_GET_MDWE = 65, 66  # linux/prctl.h, since Linux 6.3
REFUSE_EXEC_GAIN = f"""
import ctypes, os, sys
assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""What MemoryDenyWriteExecute does where the kernel has it, before the program starts."""

pytestmark = pytest.mark.timeout(400)  # a build takes half a minute of a quiet machine

Program = Callable[[str], str]


def run(*words: object, **options: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- the manual page


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packages_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rendered(page: str, program: Program, folder: Path) -> str:
    """Return the page as a reader sees it; no warning is allowed."""
    source = folder / "fabric-exporter.1"
    source.write_text(page)
    words = [program("man"), "--warnings", "--no-hyphenation", "--local-file", "--encoding=UTF-8", str(source)]
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", [*(name for name in cli.COMMANDS if name != "ib"), "ib topology", "ib diff"])
def test_the_manual_has_each_flag_of_the_help(
    name: str, program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = rendered(load("manual").page(cli.parser(), __version__, int(DATE)), program, tmp_path)
    assert text.rstrip().splitlines()[-1].split() == [
        "fabric-exporter",
        __version__,
        "2026-09-21",
        "FABRIC-EXPORTER(1)",
    ]
    section = re.split(r"^   (?=\S)|^(?=\S)", text.partition(f"\n   {name}\n")[2], flags=re.MULTILINE)[0]
    with pytest.raises(SystemExit):
        cli.parser().parse_args([*name.split(), "--help"])
    shown = capsys.readouterr().out
    flags = set(re.findall(r"^  (--[\w.-]+)", shown, re.MULTILINE))
    assert flags
    assert set(re.findall(r"^       (--[\w.-]+)", section, re.MULTILINE)) == flags
    description = shown.split("\n\n")[1]
    assert " ".join(description.split()) in " ".join(section.split())


def test_the_manual_escapes_what_is_a_request_or_an_escape(program: Program, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser("x", description=".so /etc/passwd\n'so /etc/passwd\na \\n(.x b")
    text = rendered(load("manual").page(parser, "1", 0), program, tmp_path)
    assert [line for line in (".so /etc/passwd", "'so /etc/passwd", "a \\n(.x b") if line not in text] == []


# --- the files of the checkout


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_clean(name: str, program: Program) -> None:
    run(program("shellcheck"), FOLDER / "debian" / name)


def test_the_configuration_is_accepted_and_its_flags_exist(tmp_path: Path) -> None:
    check_configuration((FOLDER / "config.yml").read_text(), tmp_path)
    flags = arguments((FOLDER / "default").read_text())
    check_flags(["run", *flags])
    assert f"--config.file={CONFIGURATION[1]}" in flags


def arguments(text: str) -> list[str]:
    """Return the flags of a file of /etc/default."""
    (line,) = (line for line in text.splitlines() if line.startswith("ARGS="))
    return shlex.split(shlex.split(line.removeprefix("ARGS="))[0])


def test_make_runs_what_is_tested_here() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "\npackage: $(DEV) ##" in makefile
    assert "\n\t@$(BIN)/python deploy/packages/build.py $(ARGS)\n" in makefile


def test_an_interpreter_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3.10\n")
    old.chmod(0o755)
    command = [sys.executable, FOLDER / "build.py", "--python", old, "--output", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    refused = f"error: {old} is Python 3.10; --python needs one of 3.11 or newer with {tmp_path}/python3.10 beside it"
    assert done.stderr == f"{refused}\n"


def test_the_readme_names_the_package() -> None:
    names = re.findall(r"fabric-exporter_(\S+)-(\d+)\+py3\.\d+_\w+\.deb", README)
    revisions = re.findall(r"^REVISION = (\d+)$", (FOLDER / "build.py").read_text(), re.MULTILINE)
    assert names == [(__version__, *revisions)]


# --- the package


@dataclass(frozen=True)
class Package:
    """The package and what dpkg-deb reads from it.

    Attributes:
        path: The package.
        fields: Its fields.
        files: Its files by name, as its archive has them.
        text: Returns the content of a file.
    """

    path: Path
    fields: Mapping[str, str]
    files: Mapping[str, tarfile.TarInfo]
    text: Callable[[str], bytes]


def build(folder: Path) -> Path:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": DATE, "PYTHONPATH": str(ROOT)}
    environment["DEBEMAIL"] = "Operators <operators@example.net>"
    command = [sys.executable, FOLDER / "build.py", "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if "No matching distribution found" in done.stderr:
        pytest.skip("needs a package index")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def package(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Package:
    tool = program("dpkg-deb")
    distribution = shutil.which("python3", path="/usr/bin")
    found = run(distribution, "-c", "import sys; print(sys.version_info >= (3, 11))") if distribution else "False"
    if found.strip() != "True":
        pytest.skip("needs Python 3.11 of the distribution")
    try:
        version("setuptools")
    except PackageNotFoundError:
        pytest.skip("needs setuptools")
    path = build(tmp_path_factory.mktemp("package"))
    fields = re.findall(r"^(\S+): (.*)$", run(tool, "--field", path), re.MULTILINE)
    data = subprocess.run([tool, "--fsys-tarfile", path], capture_output=True, check=True).stdout
    archive = tarfile.open(fileobj=BytesIO(data))  # noqa: SIM115  # read by the tests, and in memory

    def text(name: str) -> bytes:
        member = archive.extractfile(f"./{name}")
        assert member is not None
        return member.read()

    files = {member.name.removeprefix("./"): member for member in archive.getmembers()}
    return Package(path, dict(fields), files, text)


def bundled(package: Package) -> tuple[str, str]:
    """Return the minor version of Python, and the folder of Python packages."""
    (minor,) = re.findall(r"\bpython(3\.\d+)\b", package.fields["Depends"])
    return minor, f"usr/lib/fabric-exporter/lib/python{minor}/site-packages"


@pytest.mark.slow
def test_the_fields_are_those_of_this_version_and_machine(package: Package) -> None:
    minor, _ = bundled(package)
    assert Path(f"/usr/bin/python{minor}").resolve() == Path("/usr/bin/python3").resolve()
    architecture = run("dpkg", "--print-architecture").strip()
    assert package.path.name == f"fabric-exporter_{__version__}-1+py{minor}_{architecture}.deb"
    assert package.fields["Version"] == f"{__version__}-1+py{minor}"
    assert package.fields["Architecture"] == architecture
    assert package.fields["Maintainer"] == "Operators <operators@example.net>"
    assert re.fullmatch(rf"python{re.escape(minor)}, libc6 \(>= 2\.\d+\)", package.fields["Depends"])
    sizes = sum(one.size for one in package.files.values()) // 1024
    assert int(package.fields["Installed-Size"]) == sizes


@pytest.mark.slow
def test_every_file_belongs_to_root_and_only_root_can_change_it(package: Package) -> None:
    assert len(package.files) > 100
    assert {(one.uid, one.gid, one.uname, one.gname) for one in package.files.values()} == {(0, 0, "root", "root")}
    modes = {one.mode for one in package.files.values() if not one.issym()}
    assert modes == {0o644, 0o755}
    programs = {name for name, one in package.files.items() if one.isfile() and one.mode == 0o755}
    slurm = {f"usr/share/fabric-exporter/slurm/{path.name}" for path in (ROOT / "deploy" / "slurm").glob("*.sh")}
    assert programs == {"usr/bin/fabric-exporter", *slurm}


@pytest.mark.slow
def test_it_has_what_a_service_of_debian_has(package: Package) -> None:
    minor, site = bundled(package)
    own = {name for name, one in package.files.items() if not one.isdir() and not name.startswith(f"{site}/")}
    shared = {f"usr/share/fabric-exporter/slurm/{path.name}" for path in (ROOT / "deploy" / "slurm").iterdir()}
    assert own == {
        *(name.removeprefix("/") for name in CONFIGURATION),
        *("usr/bin/fabric-exporter", UNIT, "usr/lib/tmpfiles.d/fabric-exporter.conf"),
        *("usr/lib/fabric-exporter/pyvenv.cfg", "usr/lib/fabric-exporter/bin/python"),
        "usr/share/bash-completion/completions/fabric-exporter",
        "usr/share/zsh/vendor-completions/_fabric-exporter",
        "usr/share/man/man1/fabric-exporter.1.gz",
        *(f"usr/share/doc/fabric-exporter/{name}" for name in ("changelog.gz", "changelog.Debian.gz", "copyright")),
        *("usr/share/fabric-exporter/example.yml", "usr/share/fabric-exporter/timing.conf"),
        *shared,
    }
    assert package.files["usr/lib/fabric-exporter/bin/python"].linkname == f"/usr/bin/python{minor}"
    conffiles = run("dpkg-deb", "--info", package.path, "conffiles").split()
    assert set(conffiles) == set(CONFIGURATION)
    assert gzip.decompress(package.text("usr/share/doc/fabric-exporter/changelog.gz")).startswith(b"# Changelog")


@pytest.mark.slow
def test_the_readme_lists_what_it_installs(package: Package) -> None:
    table = README.partition("\n## Packages\n")[2].partition("\n## ")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `/"))
    paths = {path.removeprefix("/") for path in re.findall(r"`([^`]+)`", first)}
    assert len(paths) >= 7
    assert paths <= package.files.keys()
    below = re.findall(
        r"`([\w.]+)`", next(line for line in table.splitlines() if "`/usr/share/fabric-exporter`" in line)
    )
    assert below == ["example.yml", "timing.conf", "slurm"]
    assert {f"usr/share/fabric-exporter/{name}" for name in below} <= package.files.keys()


@pytest.mark.slow
def test_its_python_packages_are_those_of_the_lock(package: Package) -> None:
    _, site = bundled(package)
    found = dict(installed(package, site))
    assert found.pop("fabric-exporter") == __version__
    text = (ROOT / "requirements.txt").read_text()
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    assert {name: lock[name] for name in found} == found
    assert set(lock) - set(found) <= set(re.findall(r"^([\w.-]+)==\S+ ;", text, re.MULTILINE))
    licences = package.text("usr/share/doc/fabric-exporter/copyright").decode()
    named = re.findall(r"^(\S+) (\S+): \S", licences, re.MULTILINE)
    assert {normalised(name): number for name, number in named} == found


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


def installed(package: Package, site: str) -> list[tuple[str, str]]:
    names = {name.removeprefix(f"{site}/").partition("/")[0] for name in package.files if name.startswith(f"{site}/")}
    found = [re.fullmatch(r"(.+)-([^-]+)\.dist-info", name) for name in sorted(names)]
    pairs = [(normalised(one[1]), one[2]) for one in found if one is not None]
    assert len(pairs) > 10
    return pairs


@pytest.mark.slow
def test_no_file_has_a_path_of_the_machine_that_built_it(package: Package) -> None:
    regular = [name for name, one in package.files.items() if one.isfile()]
    paths = (b"fabric-exporter-package-", str(ROOT).encode(), str(Path(sys.prefix)).encode())
    assert len(regular) > 100
    assert [name for name in regular if any(path in package.text(name) for path in paths)] == []


@pytest.mark.slow
def test_a_second_build_gives_the_same_bytes(package: Package, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == package.path.read_bytes()


@pytest.mark.slow
def test_its_unit_is_that_of_the_checkout_with_the_program_of_the_package(
    package: Package, program: Program, tmp_path: Path
) -> None:
    unit = package.text(UNIT).decode()
    (started,) = re.findall(r"^ExecStart=(\S+) run \$ARGS$", unit, re.MULTILINE)
    assert started.removeprefix("/") in package.files
    source = (ROOT / "deploy" / "systemd" / "fabric-exporter.service").read_text()
    assert unit == source.replace("=/opt/fabric-exporter/bin/fabric-exporter ", f"={started} ")
    path = tmp_path / "fabric-exporter.service"
    path.write_text(unit.replace(f"ExecStart={started} ", f"ExecStart={sys.executable} "))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "fabric-exporter" in done.stderr) == (0, False), done.stderr


@pytest.mark.slow
def test_apt_finds_what_it_depends_on(package: Package, program: Program) -> None:
    planned = run(program("apt-get"), "--simulate", "--no-install-recommends", "install", package.path)
    assert re.search(r"^Inst fabric-exporter \(", planned, re.MULTILINE)


# --- installed


@dataclass(frozen=True)
class Target:
    """A folder with a package database of its own, into which dpkg installs."""

    root: Path

    def dpkg(self, *words: object) -> str:
        options = ("--force-depends", "--force-script-chrootless", "--log=/dev/null")
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return run("dpkg", f"--root={self.root}", *options, *words, env={**os.environ, "PATH": path})


@pytest.fixture
def target(package: Package, program: Program) -> Iterator[Target]:
    """Install the package in a folder that every user can read, unlike those of pytest."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program("dpkg")
    with own_folder() as folder:
        folder.chmod(0o755)
        one = Target(folder / "root")
        for name in ("info", "updates"):
            (one.root / "var" / "lib" / "dpkg" / name).mkdir(parents=True)
        (one.root / "var" / "lib" / "dpkg" / "status").touch()
        one.dpkg("--install", package.path)
        yield one


@pytest.mark.slow
def test_removal_leaves_the_configuration_and_purge_removes_it(target: Target, package: Package) -> None:
    config, secret = target.root / CONFIGURATION[1][1:], target.root / "etc" / "fabric-exporter" / "community"
    config.write_text("host: gpu-001\n")
    secret.write_text("example")
    wanted = target.root / "etc" / "systemd" / "system" / "multi-user.target.wants" / "fabric-exporter.service"
    assert not wanted.is_symlink(), "the installation enables nothing"
    wanted.parent.mkdir(parents=True)
    wanted.symlink_to(f"/{UNIT}")
    target.dpkg("--remove", "fabric-exporter")
    left = {str(path.relative_to(target.root)) for path in target.root.rglob("*") if not path.is_dir()}
    assert {name for name in left if not name.startswith("var/")} == {
        *(name[1:] for name in CONFIGURATION),
        *(str(path.relative_to(target.root)) for path in (secret, wanted)),
    }
    target.dpkg("--force-confold", "--install", package.path)
    assert config.read_text() == "host: gpu-001\n", "a new installation takes the old configuration"
    target.dpkg("--purge", "fabric-exporter")
    assert not wanted.is_symlink()
    assert [str(path) for path in (target.root / "etc").rglob("*") if path.is_file()] == [str(secret)]
    assert not (target.root / "usr" / "lib" / "fabric-exporter").exists()


@pytest.fixture
def host(target: Target, program: Program, tmp_path: Path) -> Callable[..., list[str]]:
    """Return what makes a command one on a host that has the package: its /usr is over that of this machine."""
    made: Containers = containers(tmp_path, program)
    merged = tmp_path / "usr"
    merged.mkdir()
    script = 'mount -t overlay -o "lowerdir=$1:/usr" overlay "$2" && shift 2 && exec "$@"'

    def command(*words: str) -> list[str]:
        inside = made.command(
            words, user=NOBODY, mounts={merged: "/usr", target.root / "etc": "/etc", "/sys": "/sys"}, host=("net",)
        )
        usr = str(target.root / "usr")
        return [program("unshare"), "--mount", "/bin/sh", "-c", script, "host", usr, str(merged), *inside]

    tried = subprocess.run(command("true"), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs root that may mount overlays: {tried.stderr.strip()}")
    return command


@pytest.mark.slow
def test_the_command_runs_as_a_user_without_rights(host: Callable[..., list[str]]) -> None:
    assert run(*host("/usr/bin/fabric-exporter", "--version")) == f"fabric-exporter {__version__}\n"
    (shown,) = re.findall(r"^fabric-exporter (.+)$", README, re.MULTILINE)
    assert run(*host("/usr/bin/fabric-exporter", *shlex.split(shown))).startswith(f"{CONFIGURATION[1]}: valid; ")
    where = run(*host("/usr/lib/fabric-exporter/bin/python", "-I", "-c", "import exporter; print(exporter.__file__)"))
    assert where.startswith("/usr/lib/fabric-exporter/lib/python3.")


@pytest.mark.slow
def test_the_service_serves_as_its_unit_starts_it(
    host: Callable[..., list[str]], package: Package, tmp_path: Path
) -> None:
    if ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0:
        pytest.skip("needs Linux 6.3, which refuses memory that is written and executed")
    unit = package.text(UNIT).decode()
    assert "\nMemoryDenyWriteExecute=yes\n" in unit
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    port, log = free_port(), tmp_path / "log"
    flags = arguments(package.text(CONFIGURATION[0][1:]).decode())
    flags = [one.replace(":10315", f"127.0.0.1:{port}") for one in flags]
    words = [word for one in start.split() for word in (flags if one == "$ARGS" else [one])]
    with running(host("/usr/bin/python3", "-c", REFUSE_EXEC_GAIN, *words), {"PATH": os.environ["PATH"]}, log) as one:
        answers(f"http://127.0.0.1:{port}/-/ready", one, log)
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert re.search(rf'^fabric_exporter_build_info\{{.*\bversion="{re.escape(__version__)}"', text, re.MULTILINE)
    assert re.search(r'^fabric_source_up\{source="nic"\} 1$', text, re.MULTILINE)
    assert "\nfabric_exporter_config_last_reload_successful 1" in text
