"""promtool of Prometheus, which proves rules and answers questions about series that are given to it."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from tests.helpers.promql import selectors


def run(program: str, *arguments: object) -> None:
    """Run promtool, and see that it finds no fault."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def prove(program: str, path: Path, folder: Path) -> None:
    """Run the cases of a file, each with the rules that it needs alone: promtool evaluates all of them each minute.

    Args:
        program: Where promtool is.
        path: File of cases.
        folder: For the files that it reads.
    """
    proof = yaml.safe_load(path.read_text())
    as_written = yaml.load(path.read_text(), yaml.BaseLoader)  # it makes strings alone
    for case, strings in zip(proof["tests"], as_written["tests"], strict=True):
        for series, one in zip(case["input_series"], strings["input_series"], strict=True):
            series["values"] = one["values"]  # 0x40 are forty zeros, and not the number 64
    groups = [
        group for name in proof["rule_files"] for group in yaml.safe_load((path.parent / name).read_text())["groups"]
    ]
    files = []
    for number, case in enumerate(proof["tests"]):
        needed = _needed(groups, _names_of_case(case))
        order = [name for name in proof.get("group_eval_order", ()) if name in {group["name"] for group in needed}]
        rules, file = folder / f"rules{number}.yml", folder / f"case{number}.yml"
        rules.write_text(yaml.safe_dump({"groups": needed}))
        file.write_text(
            yaml.safe_dump(proof | {"rule_files": [rules.name], "group_eval_order": order, "tests": [case]})
        )
        files.append(file)
    run(program, "test", "rules", *files)


def _names_of_case(case: Mapping[str, Any]) -> set[str]:
    """Return the alerts and the series that a case is about."""
    names = {one["alertname"] for one in case.get("alert_rule_test", ())}
    return names.union(*(_names_in(one["expr"]) for one in case.get("promql_expr_test", ())))


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def _names_in(expr: str) -> set[str]:
    """Return the series that an expression selects, and the alerts that it names; both as patterns."""
    found = selectors(promql.parse(expr))
    alerts = {matcher.value for one in found for matcher in one.matchers.matchers if matcher.name == "alertname"}
    return {one.name for one in found if one.name} | alerts


def _needed(groups: Sequence[Mapping[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Return the rules that make some alerts and series, with those that make what these rules select or describe."""
    found = set(names)
    while True:
        wanted = re.compile("|".join(found))
        rules = [rule for group in groups for rule in group["rules"] if wanted.fullmatch(_name(rule))]
        texts = " ".join(str(rule.get("annotations", "")) for rule in rules)
        further = set(re.findall(r"\w+:\w+:\w+", texts)).union(*(_names_in(rule["expr"]) for rule in rules))
        if further <= found:
            break
        found |= further
    kept = ({**group, "rules": [rule for rule in group["rules"] if rule in rules]} for group in groups)
    return [group for group in kept if group["rules"]]


def answers(
    program: str, folder: Path, series: Mapping[str, str], expected: Iterable[tuple[str, tuple[str, float]]]
) -> None:
    """See that each question has one answer after eight minutes of series with a value each half a minute.

    Args:
        program: Where promtool is.
        folder: For the file that it reads.
        series: Values by series, as promtool writes them.
        expected: Questions, each with the labels and the value of its answer.
    """
    case = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": question, "eval_time": "8m", "exp_samples": [{"labels": labels, "value": value}]}
            for question, (labels, value) in expected
        ],
    }
    (folder / "case.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    run(program, "test", "rules", folder / "case.yml")
