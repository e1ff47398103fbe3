"""The tool that takes pictures of the boards: what can be checked without node, npm and Chromium."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from exporter.config.errors import UserError
from tests.helpers.paths import ROOT

FOLDER = ROOT / "dashboards" / "pictures"
PACKAGE = json.loads((FOLDER / "package.json").read_text())
LOCK = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
DIRECT = PACKAGE["dependencies"] | PACKAGE["devDependencies"]
EXCEPTIONS = [
    one | {"panel": panel}
    for one in yaml.safe_load((FOLDER / "exceptions.yml").read_text())
    for panel in (one["panel"] if isinstance(one["panel"], list) else [one["panel"]])
]
SOURCES = sorted(
    path
    for pattern in ("*.mjs", "*.js", "*.py", "take/*", "page/*")
    for path in FOLDER.glob(pattern)
    if path.suffix != ".html"
)


def titles(board):
    """Give the titles of the panels of a board, those of folded rows included."""
    panels = json.loads((ROOT / "dashboards" / f"{board}.json").read_text())["panels"]
    every = [one for panel in panels for one in (panel, *panel.get("panels", ()))]
    return [one["title"] for one in every if one["type"] != "row"]


def make(folder, **environment):
    command = [sys.executable, FOLDER / "make.py", "--output", folder / "all", "--first-screens", folder / "first"]
    return subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )


# --- packages


def test_versions_are_exact():
    assert len(DIRECT) > 5
    assert {name: one for name, one in DIRECT.items() if not re.fullmatch(r"\d+\.\d+\.\d+", one)} == {}


def test_the_lock_is_of_these_packages():
    root = LOCK[""]
    assert {key: root.get(key) for key in ("dependencies", "devDependencies")} == {
        key: PACKAGE[key] for key in ("dependencies", "devDependencies")
    }
    assert {name: LOCK[f"node_modules/{name}"]["version"] for name in DIRECT} == DIRECT


def test_all_packages_of_the_lock_have_hashes_and_none_names_a_registry():
    packages = {name: one for name, one in LOCK.items() if name}
    assert len(packages) > len(DIRECT)
    assert [name for name, one in packages.items() if not one.get("integrity", "").startswith("sha512-")] == []
    assert [name for name, one in packages.items() if "resolved" in one] == []


def test_each_direct_dependency_is_listed_with_its_version_and_licence():
    rows = re.findall(r"^\| `([^`]+)` \| (\d[\d.]*) \| ([\w.-]+) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(
        (name, version, LOCK[f"node_modules/{name}"]["license"]) for name, version in DIRECT.items()
    )


def test_only_direct_dependencies_are_imported():
    texts = [path.read_text() for path in SOURCES if path.suffix in {".js", ".jsx", ".mjs"}]
    imported = {
        name for text in texts for name in re.findall(r"^(?:import|\} from)\b.*?'([^'.][^']*)';$", text, re.MULTILINE)
    }
    names = {re.match(r"@[^/]+/[^/]+|[^/]+", name)[0] for name in imported if not name.startswith("node:")}
    assert names == set(DIRECT)


# --- the code


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_is_short_and_begins_with_what_it_is_for(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 250
    assert lines[lines[0].startswith("#!")].startswith(("// ", '"""'))


def test_the_flags_of_a_picture_are_in_the_readme():
    flags = set(re.findall(r"^  (--\w+)", (FOLDER / "take" / "flags.mjs").read_text(), re.MULTILINE)) - {"--help"}
    assert len(flags) > 5
    assert set(re.findall(r"^\| `(--\w+) ", (FOLDER / "README.md").read_text(), re.MULTILINE)) == flags


# --- exceptions


def test_exceptions_are_about_panels_that_exist_and_have_a_reason():
    known = {board: titles(board) for board in sorted({one["board"] for one in EXCEPTIONS})}
    assert known
    assert [one for one in EXCEPTIONS if one["panel"] not in known[one["board"]]] == []
    assert [one for one in EXCEPTIONS if len(one["reason"].split()) < 3] == []


def test_no_exception_is_there_twice():
    states = ("healthy", "faults")
    keys = [(one["board"], one["panel"], one["found"], state) for one in EXCEPTIONS for state in one.get("in", states)]
    assert len(keys) == len(set(keys))


def test_the_exceptions_can_be_read(findings):
    read = findings.Exceptions.read(FOLDER / "exceptions.yml").entries
    assert [(one.board, one.panel, one.found, one.reason) for one in read] == [
        (one["board"], one["panel"], one["found"], one["reason"]) for one in EXCEPTIONS
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: b", "exceptions.yml is not a list of entries"),
        ("- {board: a, panel: b, found: c}", "entry 1 needs the keys board, panel, found and reason"),
        ("- {board: a, panel: [b, 2], found: c, reason: d}", "panel is a title or a list of titles"),
        ("- {board: a, panel: b, found: c, reason: ''}", "board, found and reason are texts"),
        ("- {board: a, panel: b, found: c, reason: d, in: [sick]}", "`in` is a list of healthy and faults"),
        ("- {board: a, panel: b, found: c, reason: d, when: now}", "entry 1 needs the keys"),
    ],
)
def test_an_invalid_exception_is_refused(findings, tmp_path, text, error):
    (tmp_path / "exceptions.yml").write_text(text)
    with pytest.raises(UserError) as raised:
        findings.Exceptions.read(tmp_path / "exceptions.yml")
    assert error in str(raised.value)


# --- make pictures


def test_missing_programs_are_named_in_one_line(tmp_path):
    done = make(tmp_path, PATH="", PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"error: not installed: node, npm, chromium\b[^\n]*: apt-get install nodejs npm chromium[^\n]*\n", done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_an_old_node_is_refused(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("node", "npm", "chromium", "prometheus", "mosquitto"):
        (programs / name).write_text("#!/bin/sh\necho v18.19.0\n")
        (programs / name).chmod(0o755)
    done = make(tmp_path, PATH=str(programs), PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {programs / 'node'} has the version v18.19.0: install 20 or newer\n"


@pytest.fixture
def findings(monkeypatch):
    """Import the module as make.py does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__("findings")
    sys.modules.pop("findings", None)


REPORT = """\
# Fabric overview, faults: last 6m to 2026-01-01T00:00:00.000Z
== The fabric now
ok            stat        Exporters | 1 series
EMPTY         table       Ports: a | b | 0 rows
OUT OF SIGHT  table       Sources | 52 rows | headers cut: Last read; 6 of 52 rows in sight
EMPTY         stat        Stragglers | 0 series | its title is cut
ERROR         timeseries  Pauses | 0 series | parse error
"""


def test_a_report_is_read(findings, tmp_path):
    (tmp_path / "a.txt").write_text(REPORT)
    report = findings.Report.read(tmp_path / "a.txt", "fabric-overview", "faults")
    assert report.panels == 5
    assert [tuple(one) for one in report.findings] == [
        ("Ports: a | b", "EMPTY"),
        ("Sources", "headers cut: Last read"),
        ("Sources", "6 of 52 rows in sight"),
        ("Stragglers", "EMPTY"),
        ("Stragglers", "its title is cut"),
        ("Pauses", "ERROR: parse error"),
    ]


def test_what_has_a_reason_is_no_problem(findings, tmp_path):
    (tmp_path / "a.txt").write_text(REPORT)
    report = findings.Report.read(tmp_path / "a.txt", "fabric-overview", "faults")
    file = tmp_path / "exceptions.yml"
    entries = [
        ("Sources", "rows in sight", ["faults"]),
        ("Stragglers", "EMPTY", ["healthy"]),
        ("Exporters", "EMPTY", ["faults"]),
    ]
    file.write_text(
        yaml.safe_dump(
            [
                {"board": "fabric-overview", "panel": panel, "found": found, "in": states, "reason": "a test of this"}
                for panel, found, states in entries
            ]
        )
    )
    summary = findings.Exceptions.read(file).summary([report])
    assert summary.problems == 5
    assert summary.lines == [
        "fabric-overview, faults: 5 panels, 1 exceptions, 5 problems",
        "  Ports: a | b: EMPTY",
        "  Sources: headers cut: Last read",
        "  Stragglers: EMPTY",
        "  Stragglers: its title is cut",
        "  Pauses: ERROR: parse error",
        "exceptions.yml: not needed now: fabric-overview, Exporters, EMPTY",
    ]
