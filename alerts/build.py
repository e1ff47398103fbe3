"""Make rules and routes: `python alerts/build.py` writes fabric*.yml and alertmanager.yml beside this file.

They are made of the rule files in `rules`, `records` and `joins` and of routing.yml, with `${section.name}` in place of
a value of thresholds.yml, and `${first_cause}` in place of the template of that name; consequences.py adds a rule to
fabric.yml. With --output it makes a copy elsewhere, tuned by --thresholds and --divide: see README.md.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import consequences
from thresholds import Thresholds, Time, Value, divided, read

from exporter.config.errors import ConfigError, UserError, system_errors_as_user_errors

FOLDER = Path(__file__).resolve().parent
THRESHOLDS = FOLDER / "thresholds.yml"
RULES = {"fabric.yml": "rules", "fabric-records.yml": "records", "fabric-joins.yml": "joins"}
"""Folders that the rule files are made of."""

ALERTING_RULES = "fabric.yml"
"""The file of those that has the alerts."""

ROUTING = {"alertmanager.yml": "routing.yml"}
"""The one file that the configuration of Alertmanager is made of, for its times."""

HEAD = """\
# Made by alerts/build.py of alerts/{source} and alerts/thresholds.yml: change those.
"""

RUNBOOK = "docs/runbooks/{}.md"
"""The page of an alert by its name, without a host: the place of your documentation is unknown."""

TEMPLATES = "*.tmpl"
"""Texts that several rules have: `${name}` is name.tmpl without its line breaks and indentation."""

PLACEHOLDER = re.compile(r"\$\{([^}|]*)(?:\|([^}]*))?\}")
"""`${section.name}`, `${section.name|form}`; names may be times that are added, `${a.window+a.for|words}`."""

ANNOTATIONS = re.compile(r"( +)- alert: (\w+)\n(?:(?!\1- ).*\n)*?\1  annotations:\n")

UNIT_WORDS = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}


def _in_words(time: Time) -> str:
    number, unit = time.parts
    return f"{number} {UNIT_WORDS[unit]}{'' if number == 1 else 's'}"


TIME_FORMS: dict[str, Callable[[Time], str]] = {
    "words": _in_words,  # 15 minutes
    "last": lambda time: "last " + _in_words(time).removeprefix("1 "),  # last 15 minutes, last day
    "seconds": lambda time: f"{time.ms / 1_000:.10g}",  # 900
    "": str,  # 15m
}
NUMBER_FORMS: dict[str, Callable[[float], str]] = {
    "percent": lambda number: f"{number * 100:.10g}%",
    "": lambda number: format(Decimal(repr(number)).normalize(), "f"),
}
"""How values are written: as in PromQL, or as a placeholder asks for."""


def render(text: str, file: str, values: Thresholds) -> str:
    """Return a rule file with values in place of placeholders, and the URL of the runbook of each alert.

    Raises:
        ConfigError: A placeholder names no threshold, or no form that its value has.
    """
    texts = {
        path.stem: "".join(map(str.strip, path.read_text(encoding="utf-8").splitlines()))
        for path in FOLDER.glob(TEMPLATES)
    }

    def put(found: re.Match[str]) -> str:
        if found[1] in texts and found[2] is None:
            return texts[found[1]]
        try:
            return _written([values[name] for name in found[1].split("+")], found[2] or "")
        except (KeyError, TypeError):
            place = f"{file}:{text.count(chr(10), 0, found.start()) + 1}"
            raise ConfigError(
                f"{place}: {found[0]} is no threshold, or has no such form; see thresholds.yml and build.py"
            ) from None

    def add_runbook(found: re.Match[str]) -> str:
        return f"{found[0]}{found[1]}    runbook_url: {RUNBOOK.format(found[2])}\n"

    return ANNOTATIONS.sub(add_runbook, PLACEHOLDER.sub(put, text))


def _written(values: list[Value], form: str) -> str:
    times = [one for one in values if isinstance(one, Time)]
    if len(times) == len(values):
        return TIME_FORMS[form](Time(sum(one.ms for one in times)))
    (number,) = (one for one in values if not isinstance(one, Time))
    return NUMBER_FORMS[form](number)


def files(values: Thresholds) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file; a rule file has the groups of all files of its folder, one after the other."""
    for name, folder in RULES.items():
        parts = []
        for path in sorted((FOLDER / folder).glob("*.yml")):
            comment, _, groups = path.read_text(encoding="utf-8").partition("groups:\n")
            parts.append(
                re.sub("^#", "  #", comment, flags=re.MULTILINE) + render(groups, f"{folder}/{path.name}", values)
            )
        if name == ALERTING_RULES:
            parts += [consequences.group(text) for _, _, text in _routing(values)]
        yield name, HEAD.format(source=folder) + "groups:\n" + "\n".join(parts)
    for name, source, text in _routing(values):
        yield name, HEAD.format(source=source) + text


def _routing(values: Thresholds) -> Iterator[tuple[str, str, str]]:
    """Yield name, source and content of each configuration of Alertmanager."""
    for name, source in ROUTING.items():
        yield name, source, render((FOLDER / source).read_text(encoding="utf-8"), source, values)


def shipped() -> Thresholds:
    """Return the values of thresholds.yml."""
    return read(THRESHOLDS.read_text(encoding="utf-8"), THRESHOLDS.name)


def main(arguments: list[str] | None = None) -> None:
    """Write the files as the command line says; an error of the user is one line and the exit status 1."""
    flags = _flags(arguments)
    try:
        values = shipped()
        if flags.thresholds is not None:
            with system_errors_as_user_errors(str(flags.thresholds), "name a file with thresholds that can be read"):
                own = flags.thresholds.read_text(encoding="utf-8", errors="replace")
            values = read(own, str(flags.thresholds), values)
        values = divided(values, flags.divide)
        with system_errors_as_user_errors(str(flags.output), "name a folder that can be written to"):
            flags.output.mkdir(parents=True, exist_ok=True)
            for name, text in files(values):
                (flags.output / name).write_text(text, encoding="utf-8")
    except UserError as error:
        sys.exit(f"error: {error}")


def _flags(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Make the rules for Prometheus and the routes for Alertmanager, or a tuned copy."
    )
    parser.add_argument("--thresholds", type=Path, metavar="FILE", help="thresholds that differ from thresholds.yml")
    parser.add_argument("--divide", type=_factor, default=1.0, metavar="FACTOR", help="divide all times by a factor")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the copy; default: the files in place")
    flags = parser.parse_args(arguments)
    if flags.output is None and (flags.thresholds is not None or flags.divide != 1):
        parser.error("--thresholds and --divide make a copy: name its folder with --output DIR")
    flags.output = flags.output or FOLDER
    return flags


def _factor(text: str) -> float:
    factor = float(text)
    if not math.isfinite(factor) or factor < 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a factor of at least 1; write 20 for windows of 3s instead of 1m"
        )
    return factor


if __name__ == "__main__":
    main()
