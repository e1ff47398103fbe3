"""Metrics of the source `nccl`."""

from exporter.core import vocabulary
from exporter.core.vocabulary import counter, gauge, info

STREAM_LABELS = ("train_job", "communicator", "collective", "rank")
COLLECTIVE_LABELS = ("train_job", "rank", "collective")
RANK_LABELS = ("train_job", "rank")

STREAMS = vocabulary.schema(
    "fabric_nccl_",
    STREAM_LABELS,
    own={
        "operations": gauge(
            "Single collectives: sequence number, bytes, microseconds, and whether timed on the GPU (1) or not (0)."
        ),
        "begun": gauge("Collectives that the rank began; absent where unknown or unchanged."),
        "ended": gauge("Collectives that the rank began and that completed; absent where unknown or unchanged."),
        "stream_info": info(
            "Process of the rank, and size of the communicator; what is unknown is empty. `expected` is the number of"
            " ranks whose timings are expected here.",
            "ranks",
            "nodes",
            "host",
            "expected",
            "place",
            "pid",
            "gpu",
            "world_rank",
            "ports",
        ),
    },
    origins={"operations": ["coll_perf.coll_exec_time_us"], "begun": ["counts"], "ended": ["counts"]},
    internal=True,
)

COLLECTIVES = vocabulary.schema(
    "fabric_nccl_",
    COLLECTIVE_LABELS,
    own={
        "collectives_total": counter("NCCL collectives recorded on the rank."),
        "collective_duration_seconds_total": counter(
            "Execution time of these collectives on the rank, including the time spent waiting for other ranks."
        ),
        "collective_bytes_total": counter(
            "Bytes of these collectives as nccl-tests counts them: for AllGather and ReduceScatter the sum over all"
            " ranks."
        ),
    },
    origins={
        "collectives_total": ["coll_perf", "ops", "entries"],
        "collective_duration_seconds_total": ["coll_perf.coll_exec_time_us", "ops.microseconds", "duration_ms"],
        "collective_bytes_total": [
            "coll_perf.coll_msg_size_bytes",
            "header.n_ranks",
            "ops.message_bytes",
            "input_sizes",
            "input_dtypes",
        ],
    },
)

RANKS = vocabulary.schema(
    "fabric_nccl_",
    RANK_LABELS,
    own={
        "rank_info": info(
            "Process of the rank: its host, the ranks and nodes of its largest communicator, and where known its GPU"
            " (PCI address, else UUID), the RDMA devices nearest to the GPU, its PID on the host, and its pod.",
            "host",
            "pid",
            "ranks",
            "nodes",
            "gpu",
            "nic",
            "host_pid",
            "job_pod",
        )
    },
    origins={
        "rank_info": [
            "header.rank",
            "header.n_ranks",
            "header.nnodes",
            "metadata.pid",
            "rank, groups and gpu of datagrams",
            "/proc/<pid>/{status,cgroup,environ}",
            "/sys/class/infiniband",
        ]
    },
)

LOSSES = vocabulary.schema(
    "fabric_nccl_inspector_",
    RANK_LABELS,
    own={
        "dropped_collectives_total": counter(
            "Collective records that NCCL Inspector overwrote in its ring buffer before writing them; absent before"
            " its format v4.1."
        ),
        "dropped_point_to_point_total": counter(
            "Send and receive records that NCCL Inspector overwrote in its ring buffer before writing them; absent"
            " before its format v4.1."
        ),
    },
    origins={
        "dropped_collectives_total": ["dump_stats.coll_dropped_since_last_dump"],
        "dropped_point_to_point_total": ["dump_stats.p2p_dropped_since_last_dump"],
    },
)

STEPS = vocabulary.schema(
    "fabric_nccl_",
    RANK_LABELS,
    own={
        "steps_total": counter("Training steps that the rank completed, as marked by fabric_timing.step()."),
        "step_tokens_total": counter("Tokens of these steps summed over all ranks; each rank reports the same value."),
        "step_operations_total": counter(
            "Floating-point operations of these steps summed over all ranks; each rank reports the same value."
        ),
    },
    origins={
        "steps_total": ["steps of datagrams"],
        "step_tokens_total": ["steps.tokens of datagrams"],
        "step_operations_total": ["steps.flops of datagrams"],
    },
)

INSPECTOR_LINES = vocabulary.schema(
    "fabric_nccl_inspector_",
    ("outcome",),
    own={
        "lines_total": counter(
            "Lines of NCCL Inspector's files by outcome: collective (used), point_to_point, marker and unknown"
            " (skipped), malformed, invalid, no_header, too_long and over_limit (dropped), duplicate (also reported by"
            " a preferred feed), excluded (of an excluded job)."
        )
    },
    origins={"lines_total": ["<host name>-pid<pid>.log"]},
)

INSPECTOR_FILES = vocabulary.schema(
    "fabric_nccl_inspector_",
    (),
    own={"files": gauge("Files of NCCL Inspector that are followed, including those of processes that ended.")},
    origins={"files": ["<host name>-pid<pid>.log"]},
)

TIMING_DATAGRAMS = vocabulary.schema(
    "fabric_nccl_timing_",
    ("outcome",),
    own={
        "datagrams_total": counter(
            "Datagrams of fabric_timing.py by outcome: accepted, or rejected as too_large, malformed, invalid,"
            " unsupported_version, no_credentials (no SCM_CREDENTIALS), job_mismatch (of another job than it claims),"
            " rate_limited, too_many_senders or queue_full."
        )
    },
    origins={"datagrams_total": ["datagrams of fabric_timing.py"]},
)

TIMING_LOSSES = vocabulary.schema(
    "fabric_nccl_timing_",
    ("reason",),
    own={
        "lost_total": counter(
            "Losses of fabric_timing.py: records dropped, collectives untimed and faults of the hook itself, as"
            " reported by the processes; and datagrams missing by their sequence numbers."
        )
    },
    origins={"lost_total": ["dropped, untimed, faults and n of datagrams"]},
)

TIMING_COLLECTIVES = vocabulary.schema(
    "fabric_nccl_timing_",
    ("outcome",),
    own={
        "collectives_total": counter(
            "Collectives reported by fabric_timing.py by outcome: used, duplicate (also reported by NCCL Inspector),"
            " over_limit (too many processes), excluded (of an excluded job)."
        )
    },
    origins={"collectives_total": ["ops of datagrams"]},
)

TIMING_SENDERS = vocabulary.schema(
    "fabric_nccl_timing_",
    (),
    own={"senders": gauge("Processes that sent datagrams of fabric_timing.py within the last five minutes.")},
    origins={"senders": ["credentials on the socket"]},
)

RECORDER_DUMPS = vocabulary.schema(
    "fabric_nccl_recorder_",
    ("outcome",),
    own={
        "dumps_total": counter(
            "Dumps of PyTorch's Flight Recorder by outcome: accepted, or rejected as pickle (loading one runs code"
            " chosen by its writer), malformed, invalid, too_large or unreadable."
        )
    },
    origins={"dumps_total": ["nccl_trace_rank_<rank>, comm_lib_trace_rank_<rank>"]},
)

RECORDER_ENTRIES = vocabulary.schema(
    "fabric_nccl_recorder_",
    ("outcome",),
    own={
        "entries_total": counter(
            "New entries in dumps of PyTorch's Flight Recorder by outcome: collective is used. Not used are"
            " point_to_point, unfinished, untimed (without TORCH_NCCL_ENABLE_TIMING), incomplete (without sizes or"
            " ranks of the group), invalid, over_limit (collectives in one poll), duplicate (already read) and excluded"
            " (by the configuration)."
        )
    },
    origins={"entries_total": ["entries"]},
)

COMMA_OBJECTS = vocabulary.schema(
    "fabric_nccl_comma_",
    ("outcome",),
    own={
        "objects_total": counter(
            "JSON objects in files of the CoMMA profiler plugin by outcome: collective is used. Not used are untimed"
            " (only the enqueue is timed), other_category (not a collective), malformed (not JSON), invalid (wrong"
            " values), too_large (file), too_long (line) and over_limit (collectives in one poll)."
        )
    },
    origins={"objects_total": ["NCCL_PROFILER_LATENCY_FILE"]},
)

COMMA_COLLECTIVES = vocabulary.schema(
    "fabric_nccl_comma_",
    ("train_job", "collective"),
    own={
        "collectives_total": counter("Collectives of the job's processes on this host that CoMMA timed."),
        "collective_duration_seconds_total": counter(
            "Execution time of these collectives, including the time spent waiting for other ranks."
        ),
    },
    origins={"collectives_total": ["name"], "collective_duration_seconds_total": ["child_dur"]},
)

XPU_COLLECTIVES = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    COLLECTIVE_LABELS,
    own={
        "collective_longest_seconds": gauge("Maximum execution time of collectives, as reported by xpu_timer."),
        "collective_shortest_seconds": gauge("Minimum execution time of collectives, as reported by xpu_timer."),
        "highest_bytes_per_second": gauge("Maximum bandwidth of collectives, as reported by xpu_timer."),
    },
    origins={
        "collective_longest_seconds": ["XPU_TIMER_COLL_KERNEL_MAX_LATENCY"],
        "collective_shortest_seconds": ["XPU_TIMER_COLL_KERNEL_MIN_LATENCY"],
        "highest_bytes_per_second": ["XPU_TIMER_COLL_KERNEL_BANDWIDTH"],
    },
)

XPU_RANKS = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    RANK_LABELS,
    own={"hang": gauge("Whether xpu_timer reports a hang of the rank (1) or not (0).")},
    origins={"hang": ["XPU_TIMER_COMMON_HANG"]},
)

XPU_LINES = vocabulary.schema(
    "fabric_nccl_xpu_timer_",
    ("reason",),
    own={"lost_lines_total": counter("Lines of xpu_timer's files that were dropped, by reason.")},
    origins={"lost_lines_total": ["files of xpu_timer"]},
)

SCHEMAS = (
    COLLECTIVES,
    RANKS,
    LOSSES,
    STEPS,
    STREAMS,
    INSPECTOR_LINES,
    INSPECTOR_FILES,
    TIMING_DATAGRAMS,
    TIMING_LOSSES,
    TIMING_COLLECTIVES,
    TIMING_SENDERS,
    RECORDER_DUMPS,
    RECORDER_ENTRIES,
    COMMA_OBJECTS,
    COMMA_COLLECTIVES,
    XPU_COLLECTIVES,
    XPU_RANKS,
    XPU_LINES,
)
"""All schemas of the source; `streams` is internal."""
