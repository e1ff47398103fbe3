"""The rule that records which alerts are consequences of others, made of the inhibition rules of routing.yml.

Alertmanager mutes these; boards show them after their causes. A label that both alerts lack is equal in Alertmanager,
and so it is for `on` in PromQL.
"""

from collections.abc import Iterable, Mapping, Sequence

import yaml

RECORD = "alert:fabric_consequence:info"

HEAD = f"""
  # Alerts that fire while one fires that mutes them, by the inhibition rules of routing.yml.
  - name: fabric-consequences
    rules:
      - record: {RECORD}
        expr: |
"""
INDENT = " " * 10


def group(routing: str) -> str:
    """Return the group of rules, as it is in a rule file, by the text of the configuration of Alertmanager."""
    inhibitions: Iterable[Mapping[str, Sequence[str]]] = yaml.safe_load(routing)["inhibit_rules"]
    return HEAD + f"{INDENT}or\n".join(map(_muted, inhibitions))


def _muted(inhibition: Mapping[str, Sequence[str]]) -> str:
    """Return the query for the alerts that one inhibition rule mutes."""
    return (
        f"{INDENT}{_firing(inhibition['target_matchers'])}\n"
        f"{INDENT}  and on ({', '.join(inhibition['equal'])})\n"
        f"{INDENT}  {_firing(inhibition['source_matchers'])}\n"
    )


def _firing(matchers: Sequence[str]) -> str:
    """Return the selector of alerts that fire, by matchers of Alertmanager, whose values may lack quotes."""
    chosen = ['alertstate="firing"']
    for name, sign, value in (one.split(maxsplit=2) for one in matchers):
        quoted = value if value.startswith('"') else f'"{value}"'
        chosen.append(f"{name}{sign}{quoted}")
    return f"ALERTS{{{', '.join(chosen)}}}"
