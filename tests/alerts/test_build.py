"""alerts/build.py: the rule files are made of the thresholds, and a tuned copy differs in what it was asked for."""

import re
import subprocess
import sys
from pathlib import Path

import promql_parser as promql
import pytest
import yaml

from exporter.config.units import Duration
from exporter.daemon import sources
from exporter.meaning.training.waits import LONG_WAIT_SECONDS
from exporter.sources.nccl.readers.recorder_progress import HOLD_SECONDS
from tests.helpers import promtool
from tests.helpers.paths import ROOT

ALERTS = ROOT / "alerts"
RULE_FILES = ("fabric.yml", "fabric-records.yml", "fabric-joins.yml")
MADE = (*RULE_FILES, "alertmanager.yml")
SOURCES = sorted(path for folder in ("rules", "records", "joins") for path in (ALERTS / folder).glob("*.yml"))
THRESHOLDS = (ALERTS / "thresholds.yml").read_text()
PLACEHOLDER = re.compile(r"\$\{([\w.+]+)(?:\|\w+)?\}")

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"(?<![\w.])(\d+)(ms|[smhd])\b")


def build(*flags: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ALERTS / "build.py", *flags]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def copy(folder: Path, *flags: object) -> Path:
    done = build("--output", folder, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def rules(path: Path) -> list[dict]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def times(text: str) -> list[float]:
    return [int(number) * UNITS[unit] for number, unit in TIME.findall(text)]


def numbers(expr: promql.Expr) -> list[float]:
    found: list[float] = []

    def note(node: promql.Expr) -> bool:
        if isinstance(node, promql.NumberLiteral):
            found.append(node.val)
        return True

    promql.walk(expr, pre_visit=note)
    return found


def test_the_rule_files_are_current(tmp_path):
    copy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(MADE)
    stale = [name for name in MADE if (tmp_path / name).read_text() != (ALERTS / name).read_text()]
    assert stale == [], "run `make docs`"


def test_every_threshold_is_used_and_has_its_unit_and_reason():
    names = {f"{section}.{name}" for section, values in yaml.safe_load(THRESHOLDS).items() for name in values}
    used = {
        name
        for path in (*SOURCES, ALERTS / "routing.yml")
        for found in PLACEHOLDER.findall(path.read_text())
        for name in found.split("+")
    }
    texts = {path.stem for path in ALERTS.glob("*.tmpl")}
    assert names | texts == used
    lines = [line for line in THRESHOLDS.splitlines() if line.startswith("  ")]
    assert len(lines) == len(names)
    assert [line for line in lines if not re.fullmatch(r"  \w+: [\w.]+  # \S.{10,}", line)] == []
    of_time = [line for line in lines if re.match(r"  \w+: \d+(ms|[smhd]) ", line)]
    assert len(of_time) > 50
    assert [line for line in of_time if "# time" not in line] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_rules_have_no_threshold_or_window_of_their_own(path):
    """Beside 0 and 1, which are states, and what a standard fixes, of which a comment gives the reason."""
    fixed = {"4194240", "42940000", "3", "2"}  # longest pause, wrap of sysUpTime, state "master", two changes a flap
    fixed.add("0.5")  # a median
    fixed |= {"4", "5"}  # states of rails
    found = rules(path)
    assert found
    for rule in found:
        bare = PLACEHOLDER.sub("", " ".join(str(rule.get(key, "")) for key in ("expr", "for", "keep_firing_for")))
        assert [one for one in re.findall(r"(?<![\w.$])\d[\d.]*(?:ms|[smhd])\b", bare) if one != "0m"] == []
        bare = re.sub(r'"[^"]*"', "", bare).replace("0m", "")
        assert set(re.findall(r"(?<![\w.$])\d[\d.]*\b", bare)) <= fixed | {"0", "1"}, rule
        assert "runbook_url" not in rule.get("annotations", {}), "build.py adds it"


def test_one_factor_divides_every_time_and_nothing_else(tmp_path):
    """Ranges, offsets, `for`, `keep_firing_for`, and the ages, which PromQL has in seconds without a unit."""
    copy(tmp_path, "--divide", 20)
    compared = 0
    for name in RULE_FILES:
        for rule, quick in zip(rules(ALERTS / name), rules(tmp_path / name), strict=True):
            whole, part = promql.parse(rule["expr"]), promql.parse(quick["expr"])
            assert times(quick["expr"]) == pytest.approx([one / 20 for one in times(rule["expr"])])
            for key in {"for", "keep_firing_for"} & rule.keys():
                assert times(quick[key]) == pytest.approx([one / 20 for one in times(rule[key])])
                compared += 1
            of_time = ("process_start_time", "uptime", "last_success", "log_age", ":seen")
            ages = any(one in rule["expr"] for one in of_time)
            pairs = zip(numbers(whole), numbers(part), strict=True)
            assert {round(one / other, 6) for one, other in pairs if one != other} <= ({20.0} if ages else set())
            assert rule.get("labels") == quick.get("labels")
    assert compared > 100
    whole, part = (yaml.safe_load((folder / "alertmanager.yml").read_text())["route"] for folder in (ALERTS, tmp_path))
    assert [times(part[key]) for key in ("group_wait", "group_interval")] == [[1.5], [15.0]]
    assert times(str(part["routes"])) == pytest.approx([one / 20 for one in times(str(whole["routes"]))])


def test_a_small_threshold_is_written_as_it_is(tmp_path):
    (tmp_path / "own.yml").write_text("link_errors: {share: 0.00000000004}\n")
    copy(tmp_path / "made", "--thresholds", tmp_path / "own.yml")
    assert "> 0.00000000004" in (tmp_path / "made" / "fabric.yml").read_text()


def test_a_copy_has_the_thresholds_of_a_file_and_texts_that_agree(tmp_path, program):
    (tmp_path / "own.yml").write_text("link_down: {window: 90s}\npause_storm:\n  share: 0.25\n  for: 2h\n")
    copy(tmp_path / "made", "--thresholds", tmp_path / "own.yml")
    before, after = (rules(folder / "fabric.yml") for folder in (ALERTS, tmp_path / "made"))
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert {rule["alert"] for rule, _ in changed} == {"FabricLinkDown", "FabricPauseStorm"}
    down = [rule for _, rule in changed if rule["alert"] == "FabricLinkDown"]
    assert ["max_over_time(fabric_rdma_link_up[90s])" in rule["expr"] for rule in down] == [True, False]
    assert "down for more than 90 seconds" in down[0]["annotations"]["description"]
    storms = [rule for _, rule in changed if rule["alert"] == "FabricPauseStorm"]
    assert len(storms) == 3
    assert all("> 0.25" in rule["expr"] and rule["for"] == "2h" for rule in storms)
    promtool.run(program("promtool"), "check", "rules", *(tmp_path / "made" / name for name in RULE_FILES))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "link_down:\n  windw: 2m\n",
            "own.yml:2: there is no threshold link_down.windw; did you mean link_down.window?",
        ),
        (
            "linkdown: {window: 2m}\n",
            "own.yml:1: there is no threshold linkdown.window; did you mean link_down.window?",
        ),
        (
            "link_down: {window: 120}\n",
            "own.yml:1: link_down.window: '120' is not a time above 0; write a number and ms, s, m, h or d: 2m",
        ),
        (
            "link_down: {window: 106752d}\n",
            "own.yml:1: link_down.window: 106752d is more than ten years; write a shorter time",
        ),
        (
            "link_down: {window: 0s}\n",
            "own.yml:1: link_down.window: '0s' is not a time above 0; write a number and ms, s, m, h or d: 2m",
        ),
        (
            "pause_share:\n  for: 5m\n  share: 10%\n",
            "own.yml:3: pause_share.share: '10%' is not a number above 0; write it without a unit: 0.1",
        ),
        (
            "pause_share: {share: 5m}",
            "own.yml:1: pause_share.share: '5m' is not a number above 0; write it without a unit: 0.1",
        ),
        (
            "pause_share: {share: .nan}",
            "own.yml:1: pause_share.share: '.nan' is not a number above 0; write it without a unit: 0.1",
        ),
        (
            "pause_share: {share: 10}",
            "own.yml:1: pause_share.share: 10 is more than 1, the whole; write a share such as 0.1",
        ),
        ("pause_share: {share: [0.1]}", "is not a number above 0; write it without a unit: 0.1"),
        (
            "pause_share: 0.1\n",
            "own.yml:1: pause_share has no names with values; write `section:`, and `  name: value` below it",
        ),
        ("", "own.yml: the file has no names with values; write `section:`, and `  name: value` below it"),
        ("pause_share: {share: 0.1", "own.yml:1:25: is not valid YAML"),
        ("pause_share: {share: 0.1}\npause_share: {for: 1m}\n", "duplicate"),
    ],
)
def test_a_wrong_threshold_is_one_clear_error(tmp_path, text, error):
    (tmp_path / "own.yml").write_text(text)
    done = build("--thresholds", tmp_path / "own.yml", "--output", tmp_path / "made")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--divide", "20"], "name its folder with --output DIR"),
        (["--thresholds", "own.yml"], "name its folder with --output DIR"),
        (["--divide", "0", "--output", "made"], "0 is not a factor of at least 1"),
        (["--divide", "nan", "--output", "made"], "nan is not a factor of at least 1"),
        (["--divide", "fast", "--output", "made"], "invalid"),
        (
            ["--thresholds", "/nowhere/own.yml", "--output", "made"],
            "/nowhere/own.yml: No such file or directory; name a file",
        ),
        (["--output", "/dev/null/made"], "name a folder that can be written to"),
    ],
)
def test_a_wrong_command_line_is_one_clear_error(tmp_path, monkeypatch, flags, error):
    monkeypatch.chdir(tmp_path)
    done = build(*flags)
    assert done.returncode != 0
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_a_hang_that_one_dump_shows_lasts_until_its_alert_fires():
    wait = yaml.safe_load(THRESHOLDS)["job_hang"]
    minutes = sum(int(wait[name].removesuffix("m")) for name in ("window", "for"))
    assert LONG_WAIT_SECONDS + 60 * minutes < HOLD_SECONDS


def test_sources_are_read_more_often_than_the_age_at_which_they_are_stale():
    age = Duration.parse(yaml.safe_load(THRESHOLDS)["source_stale"]["age"])
    intervals = {one.name: one.options().interval for one in sources.SOURCES if hasattr(one.options, "interval")}
    assert len(intervals) > 8
    assert {name: interval for name, interval in intervals.items() if interval >= age} == {}


def test_a_first_cause_is_likely_in_messages_as_on_dashboards():
    joins = (ROOT / "dashboards" / "training_joins.py").read_text()
    (likely,) = re.findall(r"^LIKELY = (\S+)$", joins, re.MULTILINE)
    assert f">= {likely}" in (ROOT / "alerts" / "first_cause.tmpl").read_text()
