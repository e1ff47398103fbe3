"""Metrics of the source `nccl_facts`."""

from collections.abc import Mapping
from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.table import Schema
from exporter.core.vocabulary import counter, gauge, info
from exporter.sources.nccl_facts.problems import PROBLEMS as KNOWN_PROBLEMS

HOST_LABELS = ("train_job", "host")
LOG = ("NCCL_DEBUG",)
"""Origin of the metrics from logs."""

_SINCE_START = " Counted from the start of the exporter, for each process that logs it."


def _log_schema(labels: tuple[str, ...], own: Mapping[str, vocabulary.Ending]) -> Schema:
    return vocabulary.schema("fabric_nccl_", labels, own=own, origins=dict.fromkeys(own, LOG))


TRANSPORT = _log_schema(
    HOST_LABELS,
    {
        "transport_info": info(
            "Network configuration of the job's processes on a host, from NCCL's log: selected network; provider of"
            " libfabric; gdr, GPUDirect RDMA on receiving channels (on, off or partial); sharp and nvls (used, unused"
            " or unavailable); pxn, whether NICs of other GPUs are used (yes or no). What is not logged is empty; mixed"
            " where processes differ.",
            "library",
            "version",
            "network",
            "provider",
            "gdr",
            "sharp",
            "nvls",
            "pxn",
        ),
        "logged_processes": gauge("Processes of the job on the host that have lines in NCCL's log."),
        "network_processes": gauge(
            "Processes of the job on the host whose log shows that they communicate with other nodes: a communicator of"
            " several nodes, or a channel over a network. Absent where no log shows either."
        ),
        "log_age_seconds": gauge(
            "Time since the last write to a log with lines of the job on the host. What a log shows applies as long as"
            " it exists, also after the job has ended."
        ),
        "failed_adapters": gauge(
            "NICs that NCCL marked as failed and did not recover, summed over processes: the job continues with less"
            " bandwidth."
        ),
    },
)

ADAPTERS = _log_schema(
    (*HOST_LABELS, "device", "port"),
    {
        "hca_info": info(
            "NIC ports in NCCL's list (NET/IB : Using): link layer, whether a logged channel uses the port (empty where"
            " no channel between nodes is logged), and whether the device supports GPUDirect RDMA.",
            "link_layer",
            "used",
            "gdr",
        )
    },
)

PROBLEMS = _log_schema(
    (*HOST_LABELS, "problem"),
    {
        "problem_processes": gauge(
            "Processes whose log shows a known cause of slow or failing jobs; absent where it is not logged. Processes "
            + "; ".join(f"{problem.meaning} ({problem.name})" for problem in KNOWN_PROBLEMS)
            + "."
        )
    },
)

COUNTERS: Mapping[str, Schema] = MappingProxyType(
    {
        "port_events": _log_schema(
            (*HOST_LABELS, "device", "port", "event"),
            {
                "port_events_total": counter(
                    "Asynchronous events of RDMA devices (NET/IB : Got async event). Up to 2.18 NCCL does not log the"
                    " device." + _SINCE_START
                )
            },
        ),
        "completion_errors": _log_schema(
            (*HOST_LABELS, "device", "status"),
            {
                "completion_errors_total": counter(
                    "Work completions with an error, by ibv_wc_status, except flushed ones. Up to 2.22 NCCL does not"
                    " log the device." + _SINCE_START
                )
            },
        ),
        "unreachable_peers": _log_schema(
            ("train_job", "peer"),
            {
                "unreachable_peer_errors_total": counter(
                    "Work completions with IBV_WC_RETRY_EXC_ERR (the peer acknowledged none of the retries), and"
                    " requests of libfabric to a peer that does not respond, by the peer's address in the log."
                    + _SINCE_START
                )
            },
        ),
        "verbs_failures": _log_schema(
            (*HOST_LABELS, "device", "call", "error"),
            {"verbs_failures_total": counter("Failed calls of libibverbs." + _SINCE_START)},
        ),
        "socket_failures": _log_schema(
            (*HOST_LABELS, "operation", "error", "outcome"),
            {
                "socket_failures_total": counter(
                    "Failed operations of TCP connections (bootstrap, NET/Socket, out-of-band), by outcome: failed, or"
                    " retried by NCCL, as a connect is while the peer does not listen yet. Operations are connect,"
                    " accept, receive, send, poll, create, listen, resolve (a name) and interface (none found)."
                    + _SINCE_START
                )
            },
        ),
        "connect_failures": _log_schema(
            ("train_job", "peer", "error"),
            {
                "connect_failures_total": counter(
                    "TCP connects that failed and are not retried, by the peer's address in the log. NCCL does not log"
                    " the address in all releases before 2.27." + _SINCE_START
                )
            },
        ),
        "libfabric_failures": _log_schema(
            (*HOST_LABELS, "operation", "error"),
            {
                "libfabric_failures_total": counter(
                    "Requests of libfabric that completed with an error (send, receive, write, read, flush, request),"
                    " and calls that failed (post, completion_queue, memory, connect, setup), from aws-ofi-nccl."
                    + _SINCE_START
                )
            },
        ),
        "watchdog_timeouts": _log_schema(
            ("train_job", "collective"),
            {
                "watchdog_timeouts_total": counter(
                    "Collectives that PyTorch's NCCL watchdog timed out, each once by process, rank and sequence number"
                    " although it is printed several times." + _SINCE_START
                )
            },
        ),
        "watchdog_stalls": _log_schema(
            ("train_job",),
            {
                "watchdog_stalls_total": counter(
                    'Times that PyTorch\'s NCCL watchdog itself made no progress ("watchdog got stuck"): a call of NCCL'
                    " or CUDA does not return." + _SINCE_START
                )
            },
        ),
    }
)
"""Schemas with one counter each, by kind of counter."""

EVENTS = _log_schema(
    HOST_LABELS,
    {
        "flushed_completions_total": counter(
            "Work completions with IBV_WC_WR_FLUSH_ERR, which follow from another error on the QP." + _SINCE_START
        ),
        "failovers_total": counter("NICs that NCCL marked as failed, continuing with the others." + _SINCE_START),
        "recoveries_total": counter("Failed NICs that NCCL recovered." + _SINCE_START),
        "recovery_failures_total": counter(
            "Failed NICs that NCCL could not recover, and that it no longer tries to." + _SINCE_START
        ),
        "fatal_errors_total": counter("Network errors that NCCL reported as fatal." + _SINCE_START),
        "peers_closed_total": counter(
            "TCP connections closed by the remote peer, whose log has the reason." + _SINCE_START
        ),
    },
)

LINES = _log_schema(
    ("outcome",),
    {
        "log_lines_total": counter(
            "Lines of NCCL's logs by outcome: fact (used), other (skipped), too_long and over_limit (dropped)."
        )
    },
)

FILES = _log_schema((), {"log_files": gauge("Logs that are followed, including those of processes that ended.")})

TEXTFILE = ("nccl_inspector_metrics_<GPU>.prom",)
"""Origin of the metrics from Inspector's text files."""

_OVER_GPUS = (
    " over the GPUs of this host, each averaged over Inspector's last window; absent if the file is older than three"
    " minutes."
)

WINDOWS = vocabulary.schema(
    "fabric_nccl_window_",
    ("train_job", "collective", "size", "class"),
    own={
        "shortest_seconds": gauge("Minimum execution time of a collective" + _OVER_GPUS),
        "longest_seconds": gauge("Maximum execution time of a collective" + _OVER_GPUS),
        "highest_bus_bandwidth_bytes_per_second": gauge("Maximum bus bandwidth" + _OVER_GPUS),
        "lowest_bus_bandwidth_bytes_per_second": gauge("Minimum bus bandwidth" + _OVER_GPUS),
        "gpus": gauge("GPUs of this host with such collectives in their last window."),
    },
    origins={
        "shortest_seconds": ["nccl_collective_exec_time_microseconds"],
        "longest_seconds": ["nccl_collective_exec_time_microseconds"],
        "highest_bus_bandwidth_bytes_per_second": ["nccl_bus_bandwidth_gbs"],
        "lowest_bus_bandwidth_bytes_per_second": ["nccl_bus_bandwidth_gbs"],
        "gpus": TEXTFILE,
    },
)

TEXTFILES = vocabulary.schema(
    "fabric_nccl_textfile_",
    ("gpu",),
    own={
        "age_seconds": gauge(
            "Time since NCCL Inspector wrote the text file of the GPU. It increases while no collectives complete:"
            " during a hang, and after a job that did not remove its file."
        ),
        "collectives_total": counter(
            "Collectives of the GPU, as counted in the Prometheus text file of NCCL Inspector."
        ),
        "collectives_dropped_total": counter("Collective records that NCCL Inspector dropped on the GPU."),
    },
    origins={
        "age_seconds": TEXTFILE,
        "collectives_total": ["nccl_collectives_total"],
        "collectives_dropped_total": ["nccl_collectives_dropped_total"],
    },
)

TEXT_LINES = vocabulary.schema(
    "fabric_nccl_textfile_",
    ("outcome",),
    own={
        "lines_total": counter(
            "Lines of NCCL Inspector's text files, once for each version of a file, by outcome: used, skipped (another"
            " statistic, a single rank, no bytes), or dropped as unknown, truncated, malformed, invalid or too_large."
        )
    },
    origins={"lines_total": TEXTFILE},
)

STATUS = ("RAS: STATUS",)
"""Origin of the metrics from RAS."""

RAS_JOB = vocabulary.schema(
    "fabric_nccl_ras_",
    ("train_job",),
    own={
        "communicators": gauge("Communicators of the job in the RAS status."),
        "ranks": gauge("Processes of the job that the RAS service reported as responding at the last query."),
        "missing_ranks": gauge("Ranks of communicators that did not respond to RAS."),
        "dead_ranks": gauge("Ranks of communicators that RAS considers dead."),
        "failed_ranks": gauge("Ranks of communicators with an NCCL error (init_state or async_error)."),
        "ranks_behind": gauge(
            "Ranks that launched fewer collectives than others of a communicator, none of which launched any between"
            " two polls. RAS counts neither point-to-point operations nor replays of CUDA graphs. Absent before the"
            " second poll."
        ),
        "stalled_seconds": gauge(
            "Time without a collective launched in any communicator, as counted by RAS: the job hangs, or does other"
            " work. If no rank is behind, all ranks launched the same, and a GPU or the network does not complete it."
        ),
        "answer_age_seconds": gauge("Time since the last RAS status."),
        "collection_seconds": gauge("Time that RAS took to collect the status from all processes."),
        "partial": gauge("Whether the RAS status is incomplete because of timeouts (1) or not (0)."),
    },
    origins={
        "communicators": ["communicators"],
        "ranks": ["communicators[].ranks"],
        "missing_ranks": ["communicators[].missing_ranks"],
        "dead_ranks": ["communicators[].missing_ranks[].status.considered_dead"],
        "failed_ranks": ["communicators[].ranks[].status.init_state", "communicators[].ranks[].status.async_error"],
        "ranks_behind": ["communicators[].ranks[].collective_counts"],
        "stalled_seconds": ["communicators[].ranks[].collective_counts"],
        "answer_age_seconds": STATUS,
        "collection_seconds": ["ras.collection_time_sec"],
        "partial": ["ras.timeouts_count"],
    },
)

RAS_BEHIND = vocabulary.schema(
    "fabric_nccl_ras_",
    ("train_job", "rank", "host", "gpu"),
    own={
        "rank_behind": gauge(
            "1 for a rank that did not launch a collective that others wait in. The rank is that in its largest"
            " communicator, the host an address, the GPU its NVML device number. At most 64 ranks are exported."
        )
    },
    origins={"rank_behind": ["communicators[].ranks[].collective_counts"]},
)

RAS_POLLS = vocabulary.schema(
    "fabric_nccl_ras_",
    ("outcome",),
    own={
        "polls_total": counter(
            "Polls of RAS by outcome: answered; unreachable, timed_out or invalid (the state is unknown);"
            " not_listening; or the reason why RAS was not polled."
        )
    },
    origins={"polls_total": STATUS},
)

LOG_SCHEMAS = (TRANSPORT, ADAPTERS, PROBLEMS, *COUNTERS.values(), EVENTS, LINES, FILES)
WINDOW_SCHEMAS = (WINDOWS, TEXTFILES, TEXT_LINES)
RAS_SCHEMAS = (RAS_JOB, RAS_BEHIND, RAS_POLLS)
SCHEMAS = (*LOG_SCHEMAS, *WINDOW_SCHEMAS, *RAS_SCHEMAS)
"""All schemas of the source."""
