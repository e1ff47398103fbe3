"""promtool of Prometheus, which proves rules and answers questions about series that are given to it."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml


def run(program: str, *arguments: object) -> None:
    """Run promtool, and see that it finds no fault."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
