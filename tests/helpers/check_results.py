"""Results of all checks on a host that is written as files: read by the readers of the source, and judged."""

from exporter.core.source import Host
from exporter.preflight.checks import CHECKS
from exporter.preflight.results import evaluate
from exporter.sources.common.host_ports import nic_reader
from exporter.sources.hostcheck.host_facts import host_facts, readings
from exporter.sources.rdma.ports import rdma_reader


def results_of(host):
    """Return the results of all checks by check and object."""
    root = Host("gpu-001", host.sysfs, host.procfs, host.recordings, dev=host.dev)
    failures, answers = [], {}
    for kind, call in readings(root, nic_reader(root), rdma_reader(root), failures, host.nccl_conf, host.lldp).items():
        try:
            answers[kind] = call()
        except OSError as error:
            answers[kind] = error
    found = evaluate(CHECKS, host_facts(root, answers))
    return {
        check: [(one.object, one.result.value, one.evidence, one.remedy) for one in all_]
        for check, all_ in found.items()
    }


def words(host, check):
    """Return the results of a check, in the order of its objects."""
    return [result for _, result, _, _ in results_of(host)[check]]


def one(host, check, name):
    """Return result and evidence of one object, whose name begins with this."""
    found = [(result, evidence) for object_, result, evidence, _ in results_of(host)[check] if object_.startswith(name)]
    assert len(found) == 1, results_of(host)[check]
    return found[0]
