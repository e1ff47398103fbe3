"""The table of a chart's values, made of the comments of values.yaml that begin with `# --`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

HEADING = "\n## Values\n"
"""What is below it in README.md is made."""

LONGEST = 60
"""Characters of a default value in the table; a longer one is in values.yaml."""

TYPES = {bool: "true or false", int: "whole number", str: "text", list: "list", dict: "mapping"}


def with_table(readme: str, values: str) -> str:
    """Return a README with the table below its heading, in place of what is there."""
    head, heading, _ = readme.partition(HEADING)
    if not heading:
        raise SystemExit(f"README.md of the chart has no heading {HEADING.strip()!r}: add it, the table comes below")
    return f"{head}{heading}\nMade of the comments of `values.yaml` by `make docs`.\n\n{table(values)}"


def table(values: str) -> str:
    """Return the table of all values that have a description."""
    defaults = yaml.safe_load(values)
    rows = [_row(path, words, defaults) for path, words in descriptions(values)]
    return "\n".join(["| value | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def descriptions(values: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the description of each value, in the order of the file."""
    parents: list[tuple[int, str]] = []
    words: list[str] = []
    for line in values.splitlines():
        text = line.strip()
        if text.startswith("# -- "):
            words = [text.removeprefix("# -- ")]
        elif text.startswith("#") and words:
            words.append(text.lstrip("# "))
        elif ":" in text and not text.startswith(("#", "-")):
            indent = len(line) - len(line.lstrip())
            parents = [one for one in parents if one[0] < indent] + [(indent, text.partition(":")[0])]
            if words:
                yield tuple(name for _, name in parents), " ".join(words)
            words = []


def _row(path: tuple[str, ...], words: str, defaults: Mapping[str, Any]) -> str:
    value: Any = defaults
    for name in path:
        value = value[name]
    default = json.dumps(value)
    shown = f"`{default}`" if len(default) <= LONGEST else "see `values.yaml`"
    return f"| `{'.'.join(path)}` | {TYPES[type(value)]} | {shown} | {words} |".replace("||", "|")
