"""The process's own metrics, under the names that every Prometheus client library gives them."""

from collections.abc import Iterator

from prometheus_client import ProcessCollector

_collector = ProcessCollector(registry=None)


def render(*, openmetrics: bool) -> Iterator[bytes]:
    """Print CPU, memory, descriptors and start time of this process; to be called off the event loop."""
    for family in _collector.collect():
        name = f"{family.name}_total" if family.type == "counter" and not openmetrics else family.name
        unit = f"# UNIT {family.name} {family.unit}\n" if openmetrics and family.unit else ""
        lines = "".join(f"{sample.name} {sample.value}\n" for sample in family.samples)
        yield f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n{unit}{lines}".encode()
