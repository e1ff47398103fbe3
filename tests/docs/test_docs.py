"""The documents are correct: commands run, examples work, tables are complete, example output matches.

`make test` cannot be run from inside itself. Its parts are looked at one by one: what it would run, the installer of
packages, and the plugin that counts skipped tests; the tests themselves are what is running now.
"""

import argparse
import ast
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
import yaml

from exporter import cli
from exporter.commands.host_snapshot import HostReaders, snapshot_host
from exporter.config import schema
from exporter.config.jobs import Algorithm, JobPlan, Precision
from exporter.config.units import Amount, BitRate, Duration
from exporter.daemon import loading, sources
from exporter.linux.nic_reader import ReplayNic
from exporter.linux.rdma_reader import ReplayRdma
from exporter.outputs import webconfig
from exporter.simulator.host import HostFiles
from exporter.simulator.traffic import Training
from exporter.sources.switch import options, targets
from tests.helpers.paths import ROOT
from tests.helpers.stack import (
    answers,
    demo,
    free_port,
    own_folder,
    process,
    until,
)
from tests.test_structure import ALLOWED, parts_imported, starters

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
CONFIGURATION = (DOCS / "configuration.md").read_text()
SOURCES = (DOCS / "sources.md").read_text()
BIN = Path(sys.executable).parent
PAGES = sorted(path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts))


def fenced(text: str, kind: str) -> list[str]:
    """Return the fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    below = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False, **options)


@pytest.fixture(autouse=True)
def _no_make_above(monkeypatch):
    """Keep the flags of the `make test` that may have started this from the makes that are started here."""
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)


# --- what is made from the code


@pytest.fixture(scope="module")
def generate():
    pytest.importorskip("shtab", reason="needs shtab")
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_current(generate):
    assert [path.name for path, text in generate.files().items() if path.read_text() != text] == [], "run `make docs`"


def test_every_metric_is_listed_once():
    listed = re.findall(r"^\| `(\w+)`(?: \*detail\*)? \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(one.name for one in sources.metrics())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["fabric-exporter", "ch"], {"check", "check-config"}),
        (["fabric-exporter", "run", "--web.l"], {"--web.listen-address"}),
        (["fabric-exporter", "demo", "--demo.fault", "pause"], {"pause-storm"}),
        (["fabric-exporter", "check-config", "--config.file", "docs/exam"], {"docs/example.yml"}),
    ],
)
def test_bash_completes(program, typed, offered):
    words = " ".join(map(shlex.quote, typed))
    script = (
        f"source deploy/completions/fabric-exporter.bash; COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; "
        '_shtab_fabric_exporter; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = run(program("bash"), "-c", script)
    assert {line.strip() for line in done.stdout.splitlines()} == offered, done.stderr


# --- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_anchors_lead_to_headings():
    found = [
        (page.parent / link if link else page, anchor)
        for page in PAGES
        for link, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text())
    ]
    assert len(found) > 10
    assert [(page.name, anchor) for page, anchor in found if anchor not in headings(page)] == []


# --- the configuration

WORDS = {
    bool: "true or false",
    str: "text",
    str | bool: "text or false",
    int: "whole number",
    float: "number",
    Duration: "duration",
    BitRate: "link speed",
    Amount: "amount",
    tuple[str, ...]: "list of text",
    tuple[int, ...]: "list of whole numbers",
    dict[str, str]: "mapping of text",
    typing.Literal["dscp", "pcp"]: "`dscp` or `pcp`",
    typing.Literal["leaf", "spine", "core"]: "`leaf`, `spine` or `core`",
    options.Snmp.__annotations__["version"]: "`1`, `2c` or `3`",
    typing.get_args(options.Snmp.__annotations__["auth"])[0]: "`md5`, `sha`, `sha224`, `sha256`, `sha384` or `sha512`",
    typing.get_args(options.Snmp.__annotations__["priv"])[0]: (
        "`des`, `aes`, `aes192`, `aes256`, `aes192c` or `aes256c`"
    ),
    dict[str, targets.CommonOptions]: "mapping",
    Precision: "`fp32`, `tf32`, `bf16`, `fp16` or `fp8`",
    Algorithm: "`ring`, `tree` or `sharp`",
    JobPlan.__annotations__["sharding"]: "`0`, `1`, `2` or `3`",
}
SAME = {
    "switches.defaults": "switches.targets[]",
    **{f"switches.targets[].{way}": "switches.targets[].onyx" for way in ("nvue", "eapi", "nxapi", "restconf")},
    **{f"switches.groups[].{key}": f"switches.targets[].{key}" for key in targets.CommonOptions.__struct_fields__},
    "switches.groups[].targets": "switches.targets",
}
"""Places that take the keys of another one: they are documented there only."""

IN_YAML = {f"{seconds}s": Duration(seconds) for seconds in (1, 2, 5, 15, 30, 35)} | {
    "1m": Duration(60),
    "4m": Duration(240),
    "5m": Duration(300),
    "10m": Duration(600),
    "500ms": Duration(0.5),
}


def fields(wanted: type, path: str = "") -> Iterator[tuple[str, object, object]]:
    """List every key below a struct: its path, its type in words, its default."""
    for field in msgspec.structs.fields(wanted):
        kind, place = field.type, f"{path}{field.encode_name}"
        if types.NoneType in typing.get_args(kind):
            (kind,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
        if typing.get_origin(kind) is typing.Annotated:  # with its bounds
            kind = typing.get_args(kind)[0]
        of = typing.get_args(kind)
        if kind == dict[str, JobPlan]:
            yield place, "mapping", {}
            yield from fields(JobPlan, f"{place}.*.")
            continue
        inner = of[0] if typing.get_origin(kind) is tuple else kind
        struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if place in SAME:
            if not place.startswith("switches.groups[]."):
                yield place, "mapping", None
            continue
        default = (
            field.default_factory() if field.default is msgspec.NODEFAULT and not field.required else field.default
        )
        if not struct:
            yield place, WORDS[kind], "required" if field.required else default
        elif of:
            yield place, "list", tuple({} if one == inner() else one for one in default)
            yield from fields(inner, f"{place}[].")
        else:
            if default is None:
                yield place, "mapping", None
            yield from fields(inner, f"{place}.")


def all_keys() -> dict[str, tuple[object, object]]:
    root = schema._root_type(sources.SECTIONS)
    return {place: (kind, default) for place, kind, default in fields(root)}


def default_of(cell: str) -> object:
    if cell in {"required", "none"}:
        return {"required": "required", "none": None}[cell]
    value = yaml.safe_load(cell.strip("`"))
    value = IN_YAML.get(value, value) if isinstance(value, str) else value
    return tuple(value) if isinstance(value, list) else value


def test_every_key_is_documented_with_its_type_and_default():
    listed = {cells[0].strip("`"): (cells[1], default_of(cells[2])) for cells in rows(CONFIGURATION, "The file")}
    assert listed == all_keys()


def paths(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from paths(one, f"{path}[]")
    elif isinstance(value, dict) and not path.endswith((".rails", ".firmware")):
        for key, one in value.items():
            place = f"{path}.{'*' if path == 'jobs' else key}".removeprefix(".")
            yield place
            yield from paths(one, place)


def test_the_example_sets_every_key_and_is_good():
    loaded = loading.load_config(DOCS / "example.yml")
    names = {target.name for target, _ in targets.resolve_targets(loaded.sources["switch"])}
    assert {"leaf-01", "leaf-12", "spine-03", "lab-01"} <= names
    assert loaded.expect.rdma_speed == 400e9 / 8
    of_host = {f"sources.{one.name}" for one in sources.SOURCES if not one.section}
    containers = {
        "sources",
        *of_host,
        "sources.nccl_facts.ras",
        "jobs.*",
        "expect",
        "switches",
        "probe",
        "mqtt",
        "collector",
    }
    given = set(paths(yaml.safe_load((DOCS / "example.yml").read_text())))
    # Keys that are documented elsewhere are checked there; names of modules and the like are free.
    documented = {one.replace("switches.groups[].targets[]", "switches.targets[]") for one in given}
    own = {"switches.groups", "switches.groups[].name"}
    documented = {one for one in documented if not one.startswith("switches.groups") or one in own}
    alike = (*(f"{place}." for place in SAME), "probe.modules.", "probe.auths.")
    documented = {one for one in documented if not one.startswith(alike)}
    # Keys that exclude one of the example.
    documented |= {"sources.ibfabric.m_key_env", "mqtt.password_env", "mqtt.sha256", "mqtt.insecure"}
    assert documented - containers == all_keys().keys()


def test_every_flag_is_documented_with_its_commands_and_default():
    (commands,) = (one for one in cli.parser()._actions if isinstance(one, argparse._SubParsersAction))
    found: dict[str, tuple[set[str], str]] = {}
    for name, parser in commands.choices.items():
        for action in parser._actions:
            if action.dest != "help":
                default = "" if action.default in (None, []) else str(action.default)
                flag = action.option_strings[0] if action.option_strings else str(action.metavar)
                found.setdefault(flag, (set(), default))[0].add(name)
    found["--web.listen-address"] = (found["--web.listen-address"][0], ":10315")
    listed = {
        cells[1].strip("`"): (set(cells[0].replace("`", "").split(", ")), cells[2].strip("`"))
        for cells in rows(CONFIGURATION, "Flags")
    }
    assert listed == found


WEB_VALUES = {"curve_preferences": ["CurveP256"], "http2": True, "interval": "1s"}


def test_every_key_of_the_web_configuration_is_documented_and_rejected_as_documented():
    listed = {cells[0].strip("`"): cells[1] for cells in rows(CONFIGURATION, "The web configuration file")}
    parts = {"tls_server_config": webconfig._Tls, "http_server_config": webconfig._Http}
    parts["rate_limit"] = webconfig._RateLimit
    known = {f"{part}.{name}" for part, struct in parts.items() for name in struct.__struct_fields__}
    assert listed.keys() == known | ({*webconfig._File.__struct_fields__} - parts.keys())
    for key, honoured in listed.items():
        if honoured.startswith(("no", "`false` only", "`0` only")):
            part, _, name = key.partition(".")
            document = {part: {name: WEB_VALUES.get(name, "text")}}
            with pytest.raises(webconfig.WebConfigError, match=re.escape(key)):
                webconfig.parse(yaml.safe_dump(document).encode(), Path("web.yml"))


# --- how to add a source


def patch(path: Path, difference: str) -> None:
    """Insert the lines that a diff adds, each after the line that precedes it there, wherever that is in the file."""
    text = path.read_text()
    for part in difference.split("\n\n"):
        before = ""
        for line in part.splitlines():
            assert line[0] in " +", "a source only adds lines"
            if line[0] == "+":
                assert text.count(f"{before}\n") == 1, before
                text = text.replace(f"{before}\n", f"{before}\n{line[1:]}\n")
            before = line[1:]
    path.write_text(text)


def toy_modules() -> dict[str, str]:
    """Return the modules of the document's source by path: the last path that is named before each block of Python."""
    *before, _ = SOURCES.split("```python\n")
    paths = [re.findall(r"`(exporter/sources/softnet/\w+\.py)`", text) for text in before]
    assert len(paths) >= 2
    assert all(paths)
    return {found[-1]: block for found, block in zip(paths, fenced(SOURCES, "python"), strict=True)}


@contextmanager
def with_toy(folder: Path) -> Iterator[Path]:
    """Copy the package, apply the document to the copy, and yield the directory to run it from."""
    shutil.copytree(ROOT / "exporter", folder / "exporter", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in toy_modules().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    patch(folder / "exporter" / "daemon" / "sources.py", fenced(SOURCES, "diff")[0])
    proc = folder / "proc" / "net"
    proc.mkdir(parents=True)
    (proc / "softnet_stat").write_text(fenced(SOURCES, "text")[0])
    (folder / "config.yml").write_text(
        "sources:\n  softnet: {interval: 100ms}\n  rdma: {enabled: false}\n  nic: {enabled: false}\n"
        "  nccl: {enabled: false}\n"
    )
    yield folder


def test_the_source_of_the_document_works():
    with own_folder() as temporary, with_toy(temporary) as folder:
        address, log = f"127.0.0.1:{free_port()}", folder / "log"
        flags = ["--config.file", folder / "config.yml", "--path.procfs", folder / "proc"]
        command = [sys.executable, "-m", "exporter", "run", *flags, "--web.listen-address", address]
        code = f"import os, sys; os.chdir({str(folder)!r}); os.execv(sys.executable, {[*map(str, command)]!r})"
        with process(log, sys.executable, "-c", code) as running:
            answers(f"http://{address}/-/ready", running, log)

            def look():
                text = httpx.get(f"http://{address}/metrics").text
                return text if "fabric_softnet_receive_packets_per_second" in text else None

            text = until("two reads", look)
        shown = [line for line in text.splitlines() if line.startswith("fabric_softnet_")]
        assert shown == fenced(SOURCES, "text")[1].splitlines()
        failed = 'fabric_source_failures_total{source="softnet",device="1",reason="malformed"}'
        assert failed in text
        assert 'fabric_source_up{source="softnet"} 1' in text


def test_the_source_of_the_document_keeps_the_rules(program):
    modules = toy_modules()
    for module in modules.values():
        tree = ast.parse(module)
        assert parts_imported(tree) - {"sources"} <= ALLOWED["sources"]
        assert starters(tree) == set()
    with own_folder() as temporary, with_toy(temporary) as folder:
        code = (
            "from exporter.core import vocabulary\n"
            "from exporter.daemon import sources\n"
            "ours = [one for one in sources.metrics() if not one.name.startswith(('process_', 'python_'))]\n"
            "print(sum('softnet' in one.name for one in ours), vocabulary.check(ours))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("4 []\n", "")
        ruff = shutil.which("ruff", path=BIN) or program("ruff")
        for command in (["check"], ["format", "--check"]):
            words = [ruff, *command, "--no-cache", "--config", ROOT / "pyproject.toml", *modules]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


# --- the README


def commands(text: str) -> list[str]:
    return [line for block in fenced(text, "sh") for line in block.splitlines()]


def plain(command: str) -> list[str]:
    """Return a make command that uses this environment, so that a test installs nothing."""
    if not (BIN / "fabric-exporter").exists():
        pytest.skip("needs fabric-exporter installed beside the interpreter")
    stamps = [word for name in ("runtime", "dev") for word in ("-o", f".venv/{name}.stamp")]
    return [*shlex.split(command), *stamps, f"BIN={BIN}"]


def with_flags(command: str, flags: str) -> list[str]:
    """Return a command of make, or of the program, with further flags."""
    if not command.startswith("make "):
        return [*shlex.split(command.replace(".venv/bin", str(BIN))), *flags.split()]
    words = plain(command)
    given = next((word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")), "")
    return [*(word for word in words if not word.startswith("ARGS=")), f"ARGS={given} {flags}"]


@contextmanager
def served(command: str, folder: Path) -> Iterator[httpx.Client]:
    """Run a command that serves, on a free port, and stop it as a terminal does."""
    address, log = f"127.0.0.1:{free_port()}", folder / "log"
    words = with_flags(command, f"--web.listen-address={address}")
    with (
        log.open("wb") as out,
        subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True) as running,
    ):
        try:
            answers(f"http://{address}/-/ready", running, log)
            with httpx.Client(base_url=f"http://{address}", trust_env=False) as client:
                yield client
        finally:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(20)


def try_run(command: str) -> None:
    with own_folder() as folder, served(command, folder) as client:
        assert 'fabric_source_reads_total{source="rdma"}' in client.get("/metrics").text


def try_demo(command: str) -> None:
    """Run the demo of a cluster until all is ready, and stop it as a terminal does."""
    with own_folder() as folder:
        log = folder / "log"
        words = with_flags(command, f"--first-port=0 --directory={folder / 'demo'}")
        with (
            log.open("wb") as out,
            subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True) as running,
        ):
            try:
                until("all parts", lambda: "Ctrl-C" in log.read_text() or running.poll() is not None, seconds=100)
            finally:
                os.killpg(running.pid, signal.SIGTERM)
                running.wait(60)
        output = log.read_text()
    assert "Ctrl-C" in output
    assert ("pause-storm: gpu-002/4" in output) is ("pause-storm" in command)


def try_fault(command: str) -> None:
    with own_folder() as folder, served(command, folder) as client:
        until(
            "the fault",
            lambda: re.search(r"^fabric_rdma_link_degraded\S+ 1$", client.get("/metrics").text, re.MULTILINE),
        )


def try_make_test(command: str) -> None:
    done = run(*plain(command), "-n")
    assert done.returncode == 0, done.stderr
    packages, tests = done.stdout.splitlines()[-2:]
    assert packages.startswith(".ci/packages ")
    assert "promtool:prometheus" in packages
    parallel = "--numprocesses=auto --dist=loadfile --no-loadscope-reorder"
    assert tests.strip() == f'{BIN}/python -m pytest -p tests.helpers.skips {parallel} -m "not slow and not job"'


def try_curl(command: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")
    with own_folder() as folder, demo(folder) as address:
        done = run(*shlex.split(command.replace("localhost:10315", address)), env={**os.environ, "no_proxy": "*"})
        assert "fabric_source_up" in done.stdout


def try_check(command: str) -> None:
    done = run(*shlex.split(command.replace(".venv/bin", str(BIN))))
    of_host = (
        len(sources.SOURCES) - 4 + 1
    )  # not switches, which are targets, nor optics, pods, ibfabric, off; and traps
    output = f"docs/example.yml: valid; {of_host} sources of this host, 16 targets ("
    assert (done.returncode, done.stdout[: len(output)]) == (0, output)


def try_snapshot(command: str) -> None:
    with own_folder() as folder:
        done = run(*shlex.split(command.replace(".venv/bin", str(BIN)).replace(" recording", f" {folder}/recording")))
        if "has no ports that are hardware" in done.stderr:
            pytest.skip("needs a network device that is hardware")
        assert done.returncode == 0, done.stderr
        assert list((folder / "recording").glob("*.json"))


def try_replay(command: str) -> None:
    with own_folder() as folder:
        files = HostFiles(folder / "simulated", Training())
        files.create()
        simulated = HostReaders(
            files.sysfs, partial(ReplayNic, files.recordings), partial(ReplayRdma, files.recordings)
        )
        snapshot_host(simulated, folder / "recording", raw=False, modules=False, progress=lambda _: None)
        words = shlex.split(command.replace(".venv/bin", str(BIN)).replace(" recording", f" {folder}/recording"))
        address, log = f"127.0.0.1:{free_port()}", folder / "log"
        with process(log, *words, f"--web.listen-address={address}") as running:
            answers(f"http://{address}/-/ready", running, log)
            text = httpx.get(f"http://{address}/metrics", trust_env=False).text
    assert 'fabric_source_up{source="nic"} 1' in text
    assert text.count("\nfabric_rdma_info{") == 8


README_COMMANDS = {
    "make run": try_run,
    "make demo": try_demo,
    "make test": try_make_test,
    "curl -s localhost:10315/metrics": try_curl,
    "make demo ARGS='--fault pause-storm:gpu-002/4@1m-10m'": try_demo,
    ".venv/bin/fabric-exporter demo --demo.fault degraded-link": try_fault,
    ".venv/bin/fabric-exporter check-config --config.file docs/example.yml": try_check,
    ".venv/bin/fabric-exporter snapshot --host recording": try_snapshot,
    ".venv/bin/fabric-exporter run --path.nic-replay recording --path.sysfs recording/sys": try_replay,
}


@pytest.mark.parametrize("command", commands(README))
def test_commands_of_the_readme_work(command, program):
    program("make")
    README_COMMANDS[command](command)


def test_the_example_output_of_the_readme_is_that_of_the_demo():
    (shown,) = fenced(README, "text")
    wanted = {line.rpartition(" ")[0] for line in shown.splitlines()}
    assert len(wanted) >= 10
    with own_folder() as folder, demo(folder) as address:

        def look():
            text = httpx.get(f"http://{address}/metrics").text
            return wanted <= {line.rpartition(" ")[0] for line in text.splitlines()}

        until("all lines of the README", look)


@pytest.mark.parametrize(
    "command",
    sorted({line for page in PAGES for line in commands(page.read_text()) if re.match(r"make |\.ci/", line)}),
)
def test_commands_of_make_in_any_page_exist(command, program):
    program("make")
    done = run(*plain(command), "-n")
    assert done.returncode == 0, done.stderr


# --- the parts of `make test`


def test_make_help_lists_every_target(program):
    listed = set(re.findall(r"^make ([\w-]+)", run(program("make")).stdout, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert listed == set(phony.split())


def test_an_old_python_is_refused_in_words(program, tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = run(program("make"), "run", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert f"needs Python 3.11 or newer, and '{python}' is none" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def tools(tmp_path, program):
    """Return a directory for PATH with the programs that the installer needs."""
    for name in ("bash", "id"):
        (tmp_path / name).symlink_to(program(name))
    return tmp_path


def packages(tools: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    return run(tools / "bash", ROOT / ".ci" / "packages", *wanted, env={"PATH": str(tools)})


def test_packages_that_are_there_are_left_alone(tools):
    done = packages(tools, "bash:bash", "id:coreutils")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_packages_that_cannot_be_installed_are_named(tools):
    done = packages(tools, "bash:bash", "no-such-program:one", "no-such-other:one", "no-such-third:two")
    assert (done.returncode, done.stdout) == (0, "")
    assert "not installed: one two;" in done.stderr


def test_packages_are_installed_without_starting_services(tools):
    if os.geteuid() != 0 or Path("/run/systemd/system").exists():
        pytest.skip("needs root and no systemd")
    (tools / "apt-get").write_text(f'#!{tools}/bash\necho "$RUNLEVEL $*" >> "{tools}/calls"\n')
    (tools / "apt-get").chmod(0o755)
    done = packages(tools, "no-such-program:one")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tools / "calls").read_text().splitlines() == [
        "1 update -qq",
        "1 install -qq --yes --no-install-recommends one",
    ]


@pytest.mark.parametrize(("reasons", "status"), [(["needs a thing", "needs a thing"], 0), (["no time"], 1), ([], 0)])
def test_skipped_tests_are_counted_and_need_a_reason(tmp_path, reasons, status):
    skipping = [f"def test_{number}():\n    pytest.skip({reason!r})\n" for number, reason in enumerate(reasons)]
    (tmp_path / "test_some.py").write_text("\n\n".join(["import pytest", "def test_good(): pass", *skipping]))
    done = run(sys.executable, "-m", "pytest", "-p", "tests.helpers.skips", "-c", os.devnull, tmp_path)
    assert done.returncode == status, done.stdout
    summary = done.stdout.partition("skipped on this machine")[2]
    assert ("2 skipped: needs a thing" in summary) == (len(reasons) == 2)
    assert ("ERROR: skipped for a reason other than something missing" in summary) == (status == 1)
    assert ("\nnothing\n" in summary) == ("needs a thing" not in reasons)
