"""The structure that the project promises: who imports whom, what a source consists of, what is never done."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from exporter.core import vocabulary
from exporter.daemon import health, probe
from exporter.daemon.pipeline import MEANINGS
from exporter.daemon.sources import SOURCES, metrics
from tests.helpers.paths import FIXTURES, ROOT

PACKAGE = ROOT / "exporter"
MODULES = sorted(PACKAGE.rglob("*.py"))

ALLOWED = {
    "config": set(),
    "linux": set(),
    "snmp": set(),
    "switch_api": set(),
    "hook": set(),
    "core": {"config"},
    "nccl": {"core"},
    "meaning": {"core"},
    "outputs": {"config", "core"},
    "mqtt": {"config", "core", "nccl"},
    "preflight": {"config", "core"},
    "sources": {"config", "core", "preflight", "linux", "snmp", "switch_api", "nccl", "mqtt"},
    "simulator": {"config", "snmp", "outputs"},  # of outputs the HTTP server, which simulated switches use too
}
"""The packages of `exporter` that each may import beside itself. The others, `daemon` and the commands, may import all
but what is in FRONT."""

FREE = {"daemon", "commands", "cli", "__main__"}

FRONT = {"commands", "cli", "__main__"}
"""Where the program begins: imported by nothing else."""

SIMULATORS = {"commands/demo.py", "commands/demo_cluster.py", "commands/replay.py"}
"""The modules outside `simulator` that may import it: the demos and `replay`, which serves a recording."""

MAX_MODULE_LINES = 400
"""Lines of a module. A longer one is a table of data, or one file by contract, and its docstring says so after LONG."""

LONG = "Long because"

MAX_FUNCTION_LINES = 50
"""Lines of code of a function, without its docstring and comments. Ruff's rules hold its complexity (C901) to 10."""

STARTERS = {
    "subprocess",
    "multiprocessing",
    "pty",
    "os.system",
    "os.popen",
    "os.fork",
    "os.forkpty",
    "asyncio.create_subprocess_exec",
    "asyncio.create_subprocess_shell",
}
"""What starts another program, beside what begins as `os.exec`, `os.spawn` and `os.posix_spawn` do."""

STARTS_PROGRAMS = PACKAGE / "simulator" / "monitoring" / "programs.py"
"""The one module that starts other programs, for the demo of a cluster."""


def part(module: Path) -> str:
    """Give the name of a module directly below `exporter`, or of the package there that it is in."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """List the full names of all that is imported, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they lead"
            yield from (f"{node.module}.{one.name}" for one in node.names)


def parts_imported(tree: ast.AST) -> set[str]:
    """Give the parts of `exporter` that are imported; a name of the package itself, such as its version, is none."""
    names = {name.split(".")[1] for name in imported(tree) if name.startswith("exporter.")}
    return names & {part(module) for module in MODULES}


def starters(tree: ast.AST) -> set[str]:
    """Give what is used that starts another program."""
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | set(imported(tree))
    return {
        name
        for name in used
        if name in STARTERS or name.split(".")[0] in STARTERS or re.match(r"os\.(exec|spawn|posix_spawn)", name)
    }


# --- who imports whom


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_imports_go_one_way(module):
    name = part(module)
    found = parts_imported(ast.parse(module.read_text())) - {name}
    if name in FREE:
        assert name in FRONT or not found & FRONT
    else:
        assert found <= ALLOWED.get(name, set()), f"{name} must not import {found - ALLOWED.get(name, set())}"
    if "simulator" in found:
        assert str(module.relative_to(PACKAGE)) in SIMULATORS


def test_imports_inside_functions_are_seen():
    tree = ast.parse("def f():\n    from exporter.outputs import web\n    import exporter.daemon\n")
    assert parts_imported(tree) == {"outputs", "daemon"}


def test_every_part_has_its_rule():
    assert ALLOWED.keys() | FREE == {part(module) for module in MODULES} - {"__init__"}
    assert not ALLOWED.keys() & FREE


def test_packages_import_each_other_in_no_circle():
    graph = {name: set() for name in ALLOWED.keys() | FREE}
    for module in MODULES:
        if part(module) != "__init__":
            graph[part(module)] |= parts_imported(ast.parse(module.read_text())) - {part(module), "__init__"}
    assert graph["core"] == {"config"}  # the graph is not empty
    order = tuple(TopologicalSorter(graph).static_order())  # raises CycleError with the circle
    assert set(order) == graph.keys()


def test_the_subpackages_of_meaning_and_sources_import_each_other_in_no_circle():
    for parent, least in (("meaning", 2), ("sources", 10)):
        graph = {
            path.name: set() for path in (PACKAGE / parent).iterdir() if path.is_dir() and path.name != "__pycache__"
        }
        assert len(graph) >= least
        for module in (PACKAGE / parent).rglob("*.py"):
            own = module.relative_to(PACKAGE / parent).parts[0]
            names = [name.split(".") for name in imported(ast.parse(module.read_text()))]
            if own in graph:
                graph[own] |= {
                    name[2] for name in names if name[:2] == ["exporter", parent] and len(name) > 2
                } & graph.keys() - {own}
        tuple(TopologicalSorter(graph).static_order())


def test_few_modules_stand_outside_the_packages():
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py", "cli.py"]


# --- what is never done


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_no_other_program_is_ever_started_but_by_the_demo_of_a_cluster(module):
    expected = {"asyncio.create_subprocess_exec"} if module == STARTS_PROGRAMS else set()
    assert starters(ast.parse(module.read_text())) == expected


@pytest.mark.parametrize(
    "code", ["import subprocess", "from os import execv", "import os\nos.posix_spawnp('x', [], {})", "os.system('x')"]
)
def test_starting_another_program_is_seen(code):
    assert starters(ast.parse(code))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_a_module_has_one_idea(module):
    text = module.read_text()
    assert len(text.splitlines()) <= MAX_MODULE_LINES or LONG in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_a_function_fits_a_screen(module):
    text = module.read_text()
    assert [name for name, lines in function_lengths(text) if lines > MAX_FUNCTION_LINES] == []


def function_lengths(text: str) -> Iterator[tuple[str, int]]:
    """List the functions of a module, each with its lines of code: no docstring, comments or blank lines."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            code = lines[body[0].lineno - 1 : node.end_lineno] if body else []
            yield node.name, sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code)


def test_lengths_of_functions_are_those_of_their_code():
    assert list(function_lengths('def f():\n    """Text."""\n    # why\n\n    a = 1\n    return a\n')) == [("f", 2)]


# --- tests that can fail

TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def asserts_outside_loops(body: list[ast.stmt]) -> bool:
    """Return whether a body asserts something, or expects an exception, whether or not its loops are entered."""
    return any(map(asserts, body))


def asserts(node: ast.stmt) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.With() | ast.AsyncWith():
            return any("raises" in ast.unparse(item) for item in node.items) or asserts_outside_loops(node.body)
        case ast.For() if never_empty(node.iter):
            return asserts_outside_loops(node.body)
        case ast.If():
            return asserts_outside_loops([*node.body, *node.orelse])
        case ast.Try():
            return asserts_outside_loops([*node.body, *node.finalbody])
    return False


def never_empty(iterated: ast.expr) -> bool:
    """Return whether what a loop is over has elements in any case: a literal, a range, or a numbering of one."""
    match iterated:
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts):
            return bool(elts)
        case ast.BinOp(left, ast.Mult()):
            return never_empty(left)
        case ast.Call(ast.Name("range")):
            return True
        case ast.Call(ast.Name("enumerate" | "sorted"), [inner, *_]):
            return never_empty(inner)
    return False


def is_drawn(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether hypothesis draws the arguments: some are empty by intention, and most are not."""
    return any(ast.unparse(one).startswith("given(") for one in node.decorator_list)


def has_assert(loop: ast.stmt) -> bool:
    return any(isinstance(one, ast.Assert) for one in ast.walk(loop))


def vain_tests(text: str) -> Iterator[str]:
    """List the tests that pass where what they loop over is empty."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            loops = [one for one in ast.walk(node) if isinstance(one, ast.For | ast.AsyncFor) and has_assert(one)]
            may_be_vain = loops and not is_drawn(node) and not asserts_outside_loops(node.body)
            if may_be_vain and not all(never_empty(loop.iter) for loop in loops):
                yield node.name


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_that_asserts_in_a_loop_asserts_that_there_is_something_to_loop_over(path):
    assert list(vain_tests(path.read_text())) == []


def test_vain_tests_are_seen():
    assert list(vain_tests("def test_a():\n    for x in y:\n        assert x\n")) == ["test_a"]
    assert list(vain_tests("def test_a():\n    assert y\n    for x in y:\n        assert x\n")) == []
    assert list(vain_tests("def test_a():\n    for x in (1, 2):\n        assert x\n")) == []


# --- metrics and sources


def test_metrics_have_good_names_and_units_and_do_not_clash():
    ours = [one for one in metrics() if not one.name.startswith(("process_", "python_"))]  # named by prometheus_client
    assert vocabulary.check(ours) == []


def test_every_metric_says_where_it_comes_from_or_is_made_here():
    polls = [definition.polls.schema for definition in SOURCES if definition.polls is not None]
    schemas = (*health.SCHEMAS, *polls, probe.PROBE)
    made_here = {metric.name for schema in schemas for metric in schema.metrics.values()}
    made_here |= {one.name for one in metrics() if one.name.startswith("fabric_exporter_")}
    computed = {
        metric.name
        for definition in SOURCES
        for schema in definition.schemas
        for meaning in MEANINGS
        for metric in meaning.outputs(schema)
    }
    assert [one.name for one in metrics() if not one.origins and one.name not in computed | made_here] == []


ON_SWITCHES = {"service_discovery", "probe", "probe_options", "probe_report", "probe_targets"}
"""Modules of the daemon for functions on switches, which use the package of that source."""


@pytest.mark.parametrize("module", sorted((PACKAGE / "daemon").glob("*.py")), ids=lambda module: module.stem)
def test_the_daemon_knows_no_source_by_name(module):
    tree = ast.parse(module.read_text())
    packages = {name.split(".")[2] for name in imported(tree) if name.startswith("exporter.sources.")}
    names = {definition.name for definition in SOURCES}
    keys = (node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    named = {key.value for key in keys if isinstance(key, ast.Constant)} & names  # such as sources["rdma"]
    if module.stem == "sources":
        assert names <= packages, "it registers all"
    elif module.stem in ON_SWITCHES:
        assert packages | named <= {"switch"}
    else:
        assert not packages | named


def test_each_source_has_one_golden_file_and_one_row_of_the_table():
    names = sorted(definition.name for definition in SOURCES)
    assert sorted(path.stem for path in (FIXTURES / "golden").iterdir()) == names
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "sources.md").read_text(), re.MULTILINE)
    assert sorted(rows) == names


# --- what the project's files say and hold

MACHINES = re.compile(
    r"/(?:root|home|workspace)/[a-z.]|\b(?:[\w-]+\.)?(?:pypi|pythonhosted|npmjs|golang)\.(?:org|com)\b|\bextra-index-url\b"
)
"""Home folders of one machine, and hosts of package registries; which those are is the user's configuration."""


def project_files() -> list[Path]:
    """List the project's files, whether or not this is a checkout of git."""
    kept = (ROOT / ".gitignore").read_text().split()
    listed = [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not any(step in {".git", *(one.rstrip("/") for one in kept)} for step in path.relative_to(ROOT).parts)
        and not any(step.endswith(".egg-info") for step in path.relative_to(ROOT).parts)
    ]
    assert len(listed) > 100
    return listed


def test_no_file_names_a_machine_or_a_registry():
    own = Path(__file__)
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in project_files()
        if path != own and (found := MACHINES.search(path.read_text(errors="replace")))
    ]
    assert wrong == []


def test_no_link_of_a_fixture_leads_back_into_where_it_is():
    """Whoever follows links, as setuptools and pytest do, would never come out again."""
    links = [Path(folder) / name for folder, names, _ in os.walk(FIXTURES) for name in names]
    assert [link for link in links if link.is_symlink() and link.parent.is_relative_to(link.resolve())] == []


def test_every_fixture_is_used():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    unused = [path.name for path in FIXTURES.iterdir() if f'"{path.name}"' not in tests]
    assert unused == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, so that the checkout stays as it is; nothing is fetched."""
    try:
        setuptools = version("setuptools")
    except PackageNotFoundError:
        setuptools = "0"
    wanted = re.search(r"setuptools>=(\d+)", (ROOT / "pyproject.toml").read_text())[1]
    if int(setuptools.split(".")[0]) < int(wanted):
        pytest.skip(f"needs setuptools {wanted}")
    folder = tmp_path_factory.mktemp("wheel")
    files = [path for path in project_files() if path.relative_to(ROOT).parts[0] in {"exporter", path.name}]
    for path in files:
        copy = folder / "source" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(folder / "source")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_wheel_is_whole_and_holds_the_package_alone(wheel):
    package = {name for name in wheel if ".dist-info/" not in name}
    files = [*MODULES, *PACKAGE.rglob("*.yml"), PACKAGE / "py.typed"]
    assert package == {str(path.relative_to(ROOT)) for path in files}
    (entry,) = (text for name, text in wheel.items() if name.endswith("entry_points.txt"))
    assert "fabric-exporter = exporter.__main__:main" in entry


def test_the_wheel_asks_for_what_is_imported_and_for_nothing_else(wheel):
    (metadata,) = (text for name, text in wheel.items() if name.endswith(".dist-info/METADATA"))
    asked = {name.lower() for name in re.findall(r"^Requires-Dist: ([\w-]+)", metadata, re.MULTILINE)}
    used = {name.split(".")[0] for module in MODULES for name in imported(ast.parse(module.read_text()))}
    names = {"yaml": "pyyaml", "prometheus_client": "prometheus-client", "paho": "paho-mqtt", "grpc": "grpcio"}
    foreign = {names.get(one, one) for one in used - sys.stdlib_module_names - {"exporter"}}
    assert foreign == asked
