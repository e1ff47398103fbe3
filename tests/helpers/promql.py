"""Looks into PromQL: do the metrics and labels that an expression names exist in the exporter."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import promql_parser as promql

from exporter.core.table import Kind
from exporter.daemon.sources import metrics

TARGET_LABELS = {"job", "instance"}

OF_ALERTS = frozenset({"alertname", "alertstate", "severity", "layer", "side", "direction", "fabric"})
"""Labels of alerts beside those of metrics; `fabric` is the external label of servers."""


def exported() -> dict[str, set[str]]:
    """Return every metric that the exporter can have with its labels, those of Prometheus and buckets included."""
    found = {metric.name: {*metric.labels, *metric.extra, *TARGET_LABELS} for metric in metrics()}
    found |= {f"{one.name}_bucket": found[one.name] | {"le"} for one in metrics() if one.kind is Kind.HISTOGRAM}
    of_alerts = OF_ALERTS.union(*found.values())
    return {**found, "up": set(TARGET_LABELS), **dict.fromkeys(("ALERTS", "ALERTS_FOR_STATE"), of_alerts)}


def recorded(rules: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return every series that rules record with the labels that it may have; rules may use what later ones record.

    Those of alerts may have the labels that their expressions make.
    """
    rules = list(rules)
    written = [(one["record"], promql.parse(one["expr"]), one.get("labels", {})) for one in rules if "record" in one]
    alerts = [promql.parse(one["expr"]) for one in rules if "alert" in one]
    found: dict[str, set[str]] = {}
    while True:
        before, found = found, {}
        known = exported() | before
        of_alerts = known["ALERTS"].union(*(labels_of(one, known) for one in alerts))
        known |= dict.fromkeys(("ALERTS", "ALERTS_FOR_STATE"), of_alerts)
        for name, expr, own in written:
            found.setdefault(name, set()).update(own, labels_of(expr, known))
        if found == before:
            return found


def selectors(expr: promql.Expr) -> list[promql.VectorSelector]:
    found: list[promql.VectorSelector] = []
    for node in _nodes(expr):
        if isinstance(node, promql.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql.VectorSelector):
            found.append(node)
    return found


def faults(expr: promql.Expr, known: Mapping[str, set[str]]) -> list[str]:
    """Find metrics and labels that do not exist."""
    problems: list[str] = []
    for one in selectors(expr):
        if one.name not in known:
            problems.append(f"no metric {one.name}")
        else:
            names = {matcher.name for matcher in one.matchers.matchers}
            problems += [f"{one.name} has no label {name}" for name in names - known[one.name]]
    for node in _nodes(expr):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            problems += _missing("by", set(node.modifier.labels), node.expr, known)
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            on = set(node.modifier.matching.labels)
            problems += _missing("on", on, node.lhs, known) + _missing("on", on, node.rhs, known)
            problems += _missing("group_left", set(node.modifier.group_labels or ()), node.rhs, known)
    return problems


def _missing(word: str, labels: set[str], expr: promql.Expr, known: Mapping[str, set[str]]) -> list[str]:
    return [f"{word} ({label}): not a label of {expr.prettify()}" for label in labels - labels_of(expr, known)]


def labels_of(expr: promql.Expr, known: Mapping[str, set[str]]) -> set[str]:
    """Return the labels that the result of an expression may have, and maybe more."""
    return set().union(*(known.get(one.name or "", set()) for one in selectors(expr)), _written(expr))


def _written(expr: promql.Expr) -> set[str]:
    """Return the labels that `label_replace` and `label_join` write."""
    calls = (node for node in _nodes(expr) if isinstance(node, promql.Call))
    return {call.args[1].val for call in calls if call.func.name in {"label_replace", "label_join"}}


def _nodes(expr: promql.Expr) -> Iterator[promql.Expr]:
    found: list[promql.Expr] = []

    def note(node: promql.Expr) -> bool:
        found.append(node)
        return True

    promql.walk(expr, pre_visit=note)
    return iter(found)
