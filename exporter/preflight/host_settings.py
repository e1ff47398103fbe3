"""Settings of the host: memory that jobs may lock, NUMA, IOMMU, frequency of the CPUs, and ARP of several rails."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from exporter.preflight.facts import HostFacts, JobProcess, NetworkPortFacts
from exporter.preflight.job_results import results_of_jobs
from exporter.preflight.results import Check, Finding, fail, not_applicable, ok, unknown, warn

ENOUGH_MEMLOCK = 32 << 30
"""Bytes that a process of a job should be allowed to lock; RDMA registers its buffers."""


DYNAMIC = frozenset({"intel_pstate", "amd-pstate-epp"})
"""Drivers of the CPU frequency whose governor `powersave` follows the load."""


def _memlock(facts: HostFacts) -> Iterator[Finding]:
    yield from results_of_jobs(facts, _judge_memlock)


def _judge_memlock(one: JobProcess) -> Iterator[Finding]:
    name = str(one.pid)
    if one.may_lock:
        yield ok(name, "has CAP_IPC_LOCK: the limit does not apply")
    elif one.memlock is None or (one.may_lock is None and one.memlock < ENOUGH_MEMLOCK):
        yield unknown(name, "limits or capabilities of the process cannot be read: run as root")
    elif one.memlock >= ENOUGH_MEMLOCK:
        yield ok(name, "may lock " + ("any memory" if one.memlock == inf else f"{one.memlock / 2**30:.0f} GiB"))
    else:
        yield fail(
            name,
            f"may lock {one.memlock / 2**10:.0f} KiB of memory; RDMA needs its buffers locked",
            "Set LimitMEMLOCK=infinity for the service that starts jobs (slurmd, containerd) and restart it: jobs that"
            " run keep their limit. Slurm passes that of the submitter on, unless PropagateResourceLimitsExcept has"
            " MEMLOCK. limits.conf has no effect on services",
        )


def _numa_balancing(facts: HostFacts) -> Iterator[Finding]:
    value, nodes = facts.kernel.numa_balancing, facts.kernel.numa_nodes
    if not facts.kernel.has_numa_balancing:
        yield not_applicable(facts.host, "this kernel has no automatic NUMA balancing")
    elif value is None:
        yield unknown(facts.host, "kernel.numa_balancing cannot be read: mount procfs with /proc/sys")
    elif value == 0 or nodes == 1:
        yield ok(facts.host, "off" if value == 0 else "one NUMA node")
    else:
        yield warn(
            facts.host,
            f"automatic NUMA balancing is on ({value}): it unmaps pages, and delays the threads that use them",
            "kernel.numa_balancing=0 in /etc/sysctl.d; services that rely on it may need to bind their memory",
        )


def _numa_node(facts: HostFacts) -> Iterator[Finding]:
    for one in (*facts.functions, *facts.gpus):
        if one.numa_node is not None:
            yield ok(one.address, f"NUMA node {one.numa_node}")
        elif facts.kernel.numa_nodes in {1, None} or facts.kernel.is_guest:
            yield not_applicable(one.address, "one NUMA node, or a virtual machine")
        else:
            yield warn(
                one.address,
                f"the firmware reports no NUMA node, of {facts.kernel.numa_nodes}",
                "Update the firmware of the host, which needs a reboot; until then bind ranks by the manual's topology",
            )


def _governor(facts: HostFacts) -> Iterator[Finding]:
    governors = facts.kernel.governors
    if governors is None:
        yield unknown(facts.host, "sysfs does not show the CPUs (/sys/devices/system/cpu), or a governor")
        return
    shown = ", ".join(
        f"{name} on {number} {'CPU' if number == 1 else 'CPUs'}" for name, number in sorted(governors.items())
    )
    if not governors:
        yield not_applicable(facts.host, "the kernel does not control the frequency, as in virtual machines")
    elif set(governors) == {"performance"}:
        yield ok(facts.host, shown)
    else:
        scaling = facts.kernel.governor_driver
        note = f"; powersave of {scaling} also raises the frequency under load" if scaling in DYNAMIC else ""
        yield warn(
            facts.host,
            f"{shown}{note}",
            "cpupower frequency-set -g performance, which is lost at reboot, if latency varies; it costs power",
        )


def _iommu(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.functions:
        if facts.kernel.is_guest:
            yield not_applicable(one.address, "the IOMMU of a virtual machine is that of its host")
        elif one.iommu is None:
            yield unknown(one.address, "sysfs does not show the type of its IOMMU group")
        elif one.iommu in {"", "identity"}:
            yield ok(one.address, "passthrough" if one.iommu else "no IOMMU")
        else:
            yield warn(
                one.address,
                f"the IOMMU translates the adapter's accesses to memory ({one.iommu}): it costs time, and may stop"
                " GPUDirect",
                "Boot with iommu=pt, after draining the host; the devices of the host can then access all its memory",
            )


def _arp(facts: HostFacts) -> Iterator[Finding]:
    """Judge ports that share an IPv4 network: each answers ARP for the others unless that is switched off."""
    networks: dict[str, list[NetworkPortFacts]] = defaultdict(list)
    rdma = {one.netdev for one in facts.rdma_ports if one.netdev}
    for port in facts.network_ports:
        if port.device in rdma and port.networks is None:
            yield unknown(port.device, "its IPv4 networks cannot be read from the routing table (/proc/net/route)")
        elif port.device in rdma:
            for network in port.networks or ():
                networks[network].append(port)
    for network, ports in sorted(networks.items()):
        for port in ports:
            if len(ports) < 2:
                yield not_applicable(port.device, f"the only port in {network}")
            elif None in (port.rp_filter, port.arp_ignore, port.arp_announce):
                yield unknown(port.device, "its settings of IPv4 cannot be read")
            elif port.rp_filter == 1 or not port.arp_ignore or not port.arp_announce:
                yield warn(
                    port.device,
                    f"{len(ports)} ports are in {network}, and {_wrong_arp(port)}: a port answers for another, or"
                    " drops what comes for it",
                    "Set rp_filter 2, arp_ignore 1 or 2 and arp_announce 2 for each of these ports in /etc/sysctl.d, or"
                    " give each rail a network of its own; connections to the address of another port stop",
                )
            else:
                yield ok(port.device, f"one of {len(ports)} ports in {network}, answers for its own address")


def _wrong_arp(port: NetworkPortFacts) -> str:
    wrong = [
        ("rp_filter", port.rp_filter == 1),
        ("arp_ignore", not port.arp_ignore),
        ("arp_announce", not port.arp_announce),
    ]
    return ", ".join(f"{name} is {getattr(port, name)}" for name, is_wrong in wrong if is_wrong)


def _interrupts(facts: HostFacts) -> Iterator[Finding]:
    for one in facts.functions:
        if one.interrupts is None or one.numa_node is None:
            yield unknown(one.address, "its interrupts, or its NUMA node, are not visible")
            continue
        local, total = one.interrupts
        if not total or facts.kernel.numa_nodes == 1:
            yield not_applicable(one.address, "it has no interrupts, or the host one NUMA node")
        elif local == 0:
            yield warn(
                one.address,
                f"all of its {total} interrupts are on CPUs of other NUMA nodes than its own, {one.numa_node}",
                f"Bind them to the CPUs of node {one.numa_node} by the vendor's script; irqbalance moves them back"
                " unless its policy excludes them. It matters for TCP: NCCL polls RDMA",
            )
        else:
            yield ok(one.address, f"{local} of {total} interrupts are on CPUs of NUMA node {one.numa_node}")


CHECKS = (
    Check("locked_memory", "Processes of jobs may lock their memory", ("processes",), _memlock),
    Check("numa_balancing", "Automatic NUMA balancing is off", ("kernel",), _numa_balancing),
    Check("numa_node", "The NUMA node of adapters and GPUs is known", ("functions", "gpus", "kernel"), _numa_node),
    Check("cpu_governor", "CPUs run at their highest frequency", ("kernel",), _governor),
    Check("iommu", "Accesses of adapters are not translated by the IOMMU", ("functions", "kernel"), _iommu),
    Check(
        "arp_of_rails",
        "Rails in one IPv4 network answer ARP for themselves alone",
        ("rdma_ports", "network_ports"),
        _arp,
    ),
    Check("interrupts", "Interrupts of adapters are on CPUs of their NUMA node", ("functions", "kernel"), _interrupts),
)
