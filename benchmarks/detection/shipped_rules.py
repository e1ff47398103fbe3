"""Scrapes of a simulated fabric, and what the shipped rules make of them, as promtool evaluates them.

    series = RecordedSeries(rule_names(), 30)
    series.add(scrape.time, scrape.pages)
    for alert in alerts_of(series): ...

promtool runs Prometheus's own rules, with `for`, `keep_firing_for` and recording rules, in the time of the series.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

RULES = Path(__file__).resolve().parents[2] / "alerts" / "fabric.yml"

JOB, FABRIC = "fabric-exporter", "demo"
"""Labels that Prometheus attaches to all series."""

_NAMES = re.compile(r"\b(?:fabric_\w+|up|process_start_time_seconds)\b")

_FIRST = 'min_over_time(timestamp(ALERTS{{alertstate="{state}"}})[{seconds}s:{step}s])'
_LAST = 'max_over_time(timestamp(ALERTS{{alertstate="{state}"}})[{seconds}s:{step}s])'

_SAMPLE = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ([-+.\deE]+)')
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_GOT = re.compile(r"^ *got: ?(?P<got>.*)$", re.MULTILINE)


class Alert(NamedTuple):
    """An alert with one set of labels.

    Attributes:
        labels: Its labels, with alertname and severity.
        true: Second at which its expression was first true.
        fired: Second at which it first fired; None if it did not.
        last: Second at which it was last active.
    """

    labels: Mapping[str, str]
    true: float
    fired: float | None
    last: float


def rule_names() -> frozenset[str]:
    """Return the names of the series that the rules read."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return frozenset(name for group in groups for rule in group["rules"] for name in _NAMES.findall(rule["expr"]))


class RecordedSeries:
    """The samples of the series that rules read, one for each scrape at most.

    Attributes:
        interval: Seconds between samples; at some of these times there may be none.
        samples: Number of samples up to the last scrape, with one at second 0, when nothing was scraped.
    """

    def __init__(self, names: Iterable[str], interval: float) -> None:
        """Args: names: Names of the series to record. interval: Seconds between samples."""
        self.interval, self.samples = interval, 1
        self._scraped: list[int] = []
        self._names = frozenset(names)
        self._samples: dict[tuple[str, str], dict[int, str]] = {}

    def add(self, time: float, pages: Mapping[str, Sequence[str] | None]) -> None:
        """Add the scrape of a time: the lines of each instance, None where it cannot be scraped."""
        place = round(time / self.interval)
        self._scraped.append(place)
        self.samples = place + 1
        for instance, lines in pages.items():
            for line in lines or ():
                series, _, value = line.rpartition(" ")
                if series.partition("{")[0] in self._names:
                    self._samples.setdefault((instance, series), {})[place] = value
            self._samples.setdefault((instance, "up"), {})[place] = "0" if lines is None else "1"

    def input_series(self) -> Iterable[tuple[str, str]]:
        """Yield each series with its values in promtool's notation."""
        for (instance, series), samples in self._samples.items():
            name, _, labels = series.partition("{")
            attached = f'job="{JOB}",instance="{instance}:10315",fabric="{FABRIC}"'
            full = f"{name}{{{attached}{',' if labels else ''}{labels or '}'}"
            yield full, notation(samples, self._scraped)


def notation(samples: Mapping[int, str], scraped: Iterable[int]) -> str:
    """Return samples as promtool writes them: `_` where nothing was scraped, `stale` where a series ended."""
    words: list[str] = []
    last: str | None = None
    place = 0
    for scrape in scraped:
        if scrape > place:
            words.append(f"_x{scrape - place}")
        value = samples.get(scrape)
        words.append(value if value is not None else "_" if last is None else "stale")
        last, place = value, scrape + 1
    return " ".join(words)


def alerts_of(series: RecordedSeries, promtool: str = "promtool") -> list[Alert]:
    """Return the alerts that the shipped rules make of series.

    Args:
        series: The series; rules are evaluated at their interval.
        promtool: The program.

    Raises:
        ValueError: promtool failed.
    """
    end, step = round((series.samples - 1) * series.interval), round(series.interval)
    questions = {
        (word, state): form.format(state=state, seconds=end + 1, step=step)
        for word, form in (("first", _FIRST), ("last", _LAST))
        for state in ("pending", "firing")
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yml"
        path.write_text(_case(series, questions.values(), end, step), encoding="utf-8")
        done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    answers = parse_answers(done.stdout + done.stderr)
    found = {key: answers.get(question) for key, question in questions.items()}
    if None in found.values():
        raise ValueError(f"promtool: {(done.stdout + done.stderr)[:2000]}")
    return _joined({key: one or {} for key, one in found.items()})


def _case(series: RecordedSeries, questions: Iterable[str], end: int, step: int) -> str:
    wrong = [{"labels": "asked", "value": -1}]  # so that promtool prints the right answer
    case = {
        "interval": f"{step}s",
        "input_series": [{"series": name, "values": values} for name, values in series.input_series()],
        "promql_expr_test": [{"expr": one, "eval_time": f"{end}s", "exp_samples": wrong} for one in questions],
    }
    # JSON is YAML.
    return json.dumps({"rule_files": [str(RULES)], "evaluation_interval": f"{step}s", "tests": [case]})


Labels = tuple[tuple[str, str], ...]


def parse_answers(output: str) -> dict[str, dict[Labels, float]]:
    """Return by question what promtool printed as its answer: values by labels."""
    found = {}
    for part in re.split(r"^ *expr: ", output, flags=re.MULTILINE)[1:]:
        question, _ = json.JSONDecoder().raw_decode(part)
        got = _GOT.search(part)
        if got is not None:
            text = got["got"]
            if text.startswith('"'):
                text = json.JSONDecoder().raw_decode(text)[0]
            found[question] = {
                tuple((name, json.loads(value)) for name, value in _LABEL.findall(labels)): float(value)
                for labels, value in _SAMPLE.findall(text)
            }
    return found


def _joined(found: Mapping[tuple[str, str], Mapping[Labels, float]]) -> list[Alert]:
    """Return the alerts of the times of their states."""
    times: dict[Labels, dict[tuple[str, str], float]] = {}
    for key, answers in found.items():
        for labels, time in answers.items():
            own = tuple(sorted((name, value) for name, value in labels if name != "alertstate"))
            times.setdefault(own, {})[key] = time
    alerts = [
        Alert(
            dict(labels),
            min(one[key] for key in one if key[0] == "first"),
            one.get(("first", "firing")),
            max(one[key] for key in one if key[0] == "last"),
        )
        for labels, one in times.items()
    ]
    return sorted(alerts, key=lambda alert: (alert.true, sorted(alert.labels.items())))
