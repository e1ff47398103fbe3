"""Lines of failures of the network, as released sources print them: release, line, and the fact; or why there is none.

Releases are tags of NVIDIA/nccl (first to last with the wording), or of aws/aws-ofi-nccl where the line has NET/OFI.
"""

from exporter.nccl.log_facts import (
    Completion,
    Failover,
    FatalError,
    LibfabricFailure,
    Recovered,
    RecoveryFailure,
    SocketFailure,
    VerbsFailure,
    WatchdogStall,
    WatchdogTimeout,
)

INFO = "h1:10:11 [2] NCCL INFO "
WARN = "h1:10:11 [2] misc/socket.cc:483 NCCL WARN "
PEER = "192.0.2.4<45763>"
NO_ROUTE = ("192.0.2.4", "No route to host", 113)
REFUSED = ("192.0.2.4", "Connection refused", 111)


def connect(peer, error, number, retried=False):
    return SocketFailure("connect", peer, error, number, retried)


def of_socket(operation, error, number, peer=""):
    return SocketFailure(operation, peer, error, number, False)


SOCKETS = [
    # connects
    (
        "v2.4.2-1 to v2.23.4-1",
        INFO + "Call to connect returned Connection refused, retrying",
        connect("", "Connection refused", 111, True),
    ),
    ("v2.4.2-1 to v2.9.9-1", WARN + f"Connect to {PEER} failed : No route to host", connect(*NO_ROUTE)),
    ("v2.10.3-1 to v2.15.5-1", WARN + f"Net : Connect to {PEER} failed : Connection refused", connect(*REFUSED)),
    (
        "v2.16.2-1 to v2.23.4-1",
        WARN + f"socketStartConnect: Connect to {PEER} failed : Software caused connection abort",
        connect("192.0.2.4", "Software caused connection abort", 103),
    ),
    (
        "v2.16.2-1 to v2.23.4-1",
        WARN + "socketPollConnect: exceeded retries (20000)",
        connect("", "Connection refused", 111),
    ),
    (
        "v2.16.2-1 to v2.23.4-1",
        WARN + "socketStartConnect: exceeded timeouts (3)",
        connect("", "Connection timed out", 110),
    ),
    (
        "v2.20.3-1 to v2.23.4-1",
        WARN + f"socketPollConnect: Connect to {PEER} returned 113(No route to host) errno 115(Operation now in "
        "progress)",
        connect(*NO_ROUTE),
    ),
    (
        "v2.24.3-1 to v2.26.6-1",
        WARN + "socketFinalizeConnect: connect returned Connection timed out, exceeded error retry count (35)",
        connect("", "Connection timed out", 110),
    ),
    (
        "v2.24.3-1 to v2.26.6-1",
        INFO + "socketStartConnect: connect returned No route to host, retrying (1/34) after sleep for 100 msec",
        connect("", "No route to host", 113, True),
    ),
    (
        "v2.24.3-1 to v2.26.6-1",
        WARN + "socketPollConnect: Connect to fe80::1%eth0<45763> failed : Network is unreachable",
        connect("fe80::1%eth0", "Network is unreachable", 101),
    ),
    (
        "v2.27.3-1 to v2.30.7-1",
        WARN + f"socketPollConnect: connect to {PEER} returned Connection refused, exceeded error retry count after 35 "
        "attempts",
        connect(*REFUSED),
    ),
    (
        "v2.27.3-1 to v2.30.7-1",
        INFO + f"socketStartConnect: connect to {PEER} returned No route to host, retrying (1/34) after sleep for 100 "
        "msec",
        connect(*NO_ROUTE, retried=True),
    ),
    (
        "v2.27.3-1 to v2.30.7-1",
        WARN + "ncclOsSocketStartConnect: connect to n2.example.org<45763> failed : Cannot assign requested address",
        connect("n2.example.org", "Cannot assign requested address", 99),
    ),
    (
        "v2.27.3-1 to v2.28.9-1",
        WARN + f"socketPollConnect to {PEER} failed with error Connection reset by peer",
        connect("192.0.2.4", "Connection reset by peer", 104),
    ),
    (
        "v2.29.2-1 to v2.30.7-1",
        WARN + f"ncclOsSocketPollConnect to {PEER} failed with error Connection timed out",
        connect("192.0.2.4", "Connection timed out", 110),
    ),
    (
        "v2.16.5-1 to v2.26.6-1",
        WARN + "socketPollConnect poll() failed with error Invalid argument",
        of_socket("poll", "Invalid argument", 22),
    ),
    (
        "v2.23.4-1 to v2.26.6-1",
        WARN + "socketPollConnect poll() returned 1, no POLLOUT events",
        of_socket("poll", "1, no POLLOUT events", None),
    ),
    # data
    (
        "v2.4.2-1 to v2.9.9-1",
        WARN + "Call to recv failed : Connection reset by peer",
        of_socket("receive", "Connection reset by peer", 104),
    ),
    (
        "v2.10.3-1 to v2.15.5-1",
        WARN + f"Net : Call to recv from {PEER} failed : Connection reset by peer",
        of_socket("receive", "Connection reset by peer", 104, "192.0.2.4"),
    ),
    (
        "v2.24.3-1 to v2.28.9-1",
        WARN + f"socketProgressOpt: Call to send to {PEER} failed : Broken pipe",
        of_socket("send", "Broken pipe", 32, "192.0.2.4"),
    ),
    (
        "v2.29.2-1 to v2.30.7-1",
        WARN + f"ncclOsSocketProgressOpt: Call to recv from {PEER} failed : Connection timed out",
        of_socket("receive", "Connection timed out", 110, "192.0.2.4"),
    ),
    # calls of the system: "failed :" up to 2.29, "failed:" in v2.30.7-1 (src/include/checks.h)
    (
        "v2.4.2-1 to v2.30.7-1",
        WARN + "Call to bind failed : Cannot assign requested address",
        of_socket("listen", "Cannot assign requested address", 99),
    ),
    ("v2.30.7-1", WARN + "Call to socket failed: Too many open files", of_socket("create", "Too many open files", 24)),
    (
        "v2.18.1-1 to v2.28.9-1",
        WARN + "socketTryAccept: Accept failed: Too many open files",
        of_socket("accept", "Too many open files", 24),
    ),
    (
        "v2.12.7-1 to v2.29.7-1",
        WARN + "[Service thread] Accept failed Connection refused",
        of_socket("accept", "Connection refused", 111),
    ),
    (
        "v2.24.3-1 to v2.26.6-1",
        WARN + "socketTryAccept: exceeded error retry count (35), Software caused connection abort",
        of_socket("accept", "Software caused connection abort", 103),
    ),
    (
        "v2.29.2-1 to v2.30.7-1",
        WARN + "ncclOsSocketTryAccept: exceeded error retry count after 35 attempts, Network is down",
        of_socket("accept", "Network is down", 100),
    ),
    (
        "v2.16.2-1 to v2.17.1-1",
        WARN + "socketTryAccept: get errno 24 that is not EAGAIN or EWOULDBLOCK",
        of_socket("accept", "", 24),
    ),
    (
        "v2.27.3-1 to v2.30.7-1",
        INFO + "Call to accept returned Software caused connection abort, retrying",
        SocketFailure("accept", "", "Software caused connection abort", 103, True),
    ),
    (
        "v2.16.2-1 to v2.23.4-1",
        WARN + "ncclSocketInit: Socket creation failed : Too many open files",
        of_socket("create", "Too many open files", 24),
    ),
    # addresses and interfaces
    (
        "v2.4.2-1 to v2.30.7-1",
        WARN + "Net : error encountered when getting address info : Name or service not known",
        of_socket("resolve", "Name or service not known", None),
    ),
    (
        "v2.4.2-1 to v2.26.6-1",
        WARN + f"Net : No interface found in the same subnet as remote address {PEER}",
        of_socket("interface", "", None, "192.0.2.4"),
    ),
    ("v2.4.8-1 to v2.30.7-1", WARN + "Bootstrap : no socket interface found", of_socket("interface", "", None)),
    ("v2.4.2-1 to v2.30.7-1", WARN + "NET/IB : No IP interface found.", of_socket("interface", "", None)),
    ("v2.4.2-1 to v2.30.7-1", WARN + "NET/Socket : no interface found", of_socket("interface", "", None)),
    (
        "v2.24.3-1 to v2.30.7-1",
        WARN + "no device found matching exactly eth9, verify NCCL_OOB_NET_IFNAME",
        of_socket("interface", "", None),
    ),
    (
        "v2.24.3-1 to v2.30.7-1",
        WARN + "no device found after excluding eth,ib, verify NCCL_OOB_NET_IFNAME",
        of_socket("interface", "", None),
    ),
    (
        "v2.23.4-1",
        WARN + "no device found matching NCCL_OOB_NET_IFNAME=eth9, ignoring",
        of_socket("interface", "", None),
    ),
]

OFI = "h1:10:11 [2] nccl_net_ofi_rdma_process_cq_error:1463 NCCL WARN NET/OFI "
EFA_TEXT = (
    "Unresponsive receiver (reachable by EFA device but handshake failed) My EFA addr: "
    "fi_addr_efa://[fe80::1]:0:1072483550 My host id: i-01 Peer EFA addr: fi_addr_efa://[fe80::2]:0:947699476"
)

LIBFABRIC = [
    (
        "v1.3.0 to v1.9.2-aws",
        OFI + "Request 0x7f2b8c0a1c18 completed with error. RC: 21. Error: unknown error. Completed length: 0, "
        "Request: { buffer_index: 254, dev: 0, size: 0, state: PENDING, direction: RECV }",
        LibfabricFailure("receive", 21, "unknown error", ""),
    ),
    (
        "v1.10.0-aws to v1.18.0",
        OFI + "Request 0x7f2b8c0a1c18 completed with error. RC: 103. Error: 8 (Connection was reset by remote peer). "
        "Completed length: 0, Request: { dev: 2, size: 4096, state: PENDING, type: SEND }",
        LibfabricFailure("send", 103, "Connection was reset by remote peer", ""),
    ),
    (
        "v1.17.0 to v1.18.0",
        OFI + f"Request 0x7f2b8c0a1c18 seq 77 completed with error. RC: 113. Error: 4126 ({EFA_TEXT}). Completed "
        "length: 0, Request: { dev: 2, size: 4096, state: PENDING, type: EAGER_RX_BUFF }",
        LibfabricFailure("receive", 113, EFA_TEXT, "fe80::2"),
    ),
    (
        "v1.16.0 to v1.18.0 (connection manager)",
        OFI + "Request 0x7f2b8c0a1c18 completed with error. RC: 12. Error: 4105 (Out of memory). Completed length: 0",
        LibfabricFailure("request", 12, "Out of memory", ""),
    ),
    (
        "v1.19.0 to v1.20.0",
        OFI + "Request 0x7f2b8c0a1c18 seq 9 completed with error. RC: 5. Flags: 1048576. Error: 10 (Destination "
        "resource not ready (no work queue entries posted on receive queue)). Completed length: 0, Request: "
        "{ dev: 2, size: 4096, state: PENDING, type: WRITE }",
        LibfabricFailure(
            "write", 5, "Destination resource not ready (no work queue entries posted on receive queue)", ""
        ),
    ),
    (
        "v1.15.0 to v1.18.0",
        OFI + "Remote write completed with error. RC: 103. Error: 8 (Connection was reset by remote peer). Completed "
        "length: 0",
        LibfabricFailure("write", 103, "Connection was reset by remote peer", ""),
    ),
    (
        "v1.19.0 to v1.21.1",
        OFI + "Remote write completed with error. RC: 113. Flags: 1048576. Error: 4124 (Unresponsive receiver "
        "(connection previously established)). Completed length: 0",
        LibfabricFailure("write", 113, "Unresponsive receiver (connection previously established)", ""),
    ),
    (
        "v1.19.0 to v1.21.1 (GIN)",
        OFI + "Request 0x7f2b8c0a1c18 completed with error. RC: 5. Flags: 2. Error: 13 (Unresponsive remote (was "
        "previously responsive)). Completed length: 0",
        LibfabricFailure("request", 5, "Unresponsive remote (was previously responsive)", ""),
    ),
    (
        "v1.21.0 to v1.21.1",
        OFI + "Request 0x7f2b8c0a1c18 ({ dev: 0, size: 8, state: PENDING, direction: SEND }) completed with error: "
        "err: 5, flags: 0, prov_errno: 15, strerror: Unreachable remote - never received a response, len: 0",
        LibfabricFailure("send", 5, "Unreachable remote - never received a response", ""),
    ),
    (
        "v1.21.0 to v1.21.1 (connection manager)",
        OFI + "Request 0x7f2b8c0a1c18 (cm) completed with error: err: 113, flags: 0, prov_errno: 4126, strerror: "
        f"{EFA_TEXT}, len: 0",
        LibfabricFailure("connect", 113, EFA_TEXT, "fe80::2"),
    ),
    (
        "v1.7.0-aws to v1.14.2",
        OFI + "Operation with NULL context completed with error!",
        LibfabricFailure("request", None, "", ""),
    ),
    (
        "v1.3.0 to v1.21.1",
        OFI + "Unable to retrieve completion queue entries. RC: -22, ERROR: Invalid argument",
        LibfabricFailure("completion_queue", 22, "Invalid argument", ""),
    ),
    (
        "v1.2.0 to v1.6.0",
        OFI + "Unable to send connect message for dev 3. RC: -113, ERROR: No route to host",
        LibfabricFailure("connect", 113, "No route to host", ""),
    ),
    (
        "v1.7.0-aws to v1.15.0",
        OFI + "fi_writedata failed; RC: -12, Error: Cannot allocate memory",
        LibfabricFailure("post", 12, "Cannot allocate memory", ""),
    ),
    (
        "v1.20.0 to v1.21.1",
        OFI + "fi_mr_bind (control rail 2) failed: rc=-22, error=Invalid argument",
        LibfabricFailure("memory", 22, "Invalid argument", ""),
    ),
    (
        "v1.7.0-aws to v1.21.1",
        OFI + "Couldn't bind EP-AV. RC: -22, ERROR: Invalid argument",
        LibfabricFailure("setup", 22, "Invalid argument", ""),
    ),
    (
        "v1.1.0 to v1.8.1-aws",
        OFI + "OFI call failed with RC -19, No such device",
        LibfabricFailure("setup", 19, "No such device", ""),
    ),
]

RDMA = [
    (
        "v2.29.7-1 to v2.30.7-1 (with failover)",
        INFO + "NET/IB: ncclIbResiliencyHandleCompletionError: Got completion with error (devIndex=1, "
        "wc->status=(IBV_WC_RETRY_EXC_ERR)12, wc->opcode=(IBV_WC_SEND)0, wc->wr_id=7, wc->qp_num=1444, wc->byte_len=0)",
        Completion(12, None, "", "", ""),
    ),
    (
        "v2.28.7-1 to v2.30.7-1 (GIN)",
        WARN + "NET/IB/GIN: Got completion from peer 192.0.2.9<1234> with status=12 opcode=0 len=0 vendor err 129 "
        "(Send) localGid ::ffff:192.0.2.8 remoteGids::ffff:192.0.2.9 hca mlx5_2",
        Completion(12, 129, "192.0.2.9", "mlx5_2", "Send"),
    ),
    (
        "v2.29.2-1 to v2.30.7-1",
        WARN + "NET/IB: Got completion from peer 192.0.2.9<1> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=IBV_WC_SEND(0) vendor_err=129  localGid ::1 remoteGids::2 hca mlx5_1",
        Completion(12, 129, "192.0.2.9", "mlx5_1", ""),
    ),
    (
        "v2.4.2-1 to v2.8.4-1",
        WARN + "ibv_post_send() failed with error Cannot allocate memory",
        VerbsFailure("ibv_post_send", "Cannot allocate memory", "", None, ()),
    ),
    (
        "v2.9.6-1 to v2.30.7-1",
        WARN + "ibv_post_send() failed with error Invalid argument, Bad WR 0x7f00, First WR 0x7f00",
        VerbsFailure("ibv_post_send", "Invalid argument", "", None, ()),
    ),
    (
        "v2.4.2-1 to v2.30.7-1",
        WARN + "Call to ibv_poll_cq() returned -1",
        VerbsFailure("ibv_poll_cq", "", "", None, ()),
    ),
    (
        "v2.19.1-1 to v2.30.7-1",
        WARN + "Call to ibv_modify_qp failed with error Connection timed out errno 110",
        VerbsFailure("ibv_modify_qp", "Connection timed out", "", None, ()),
    ),
    (
        "v2.30.3-1 to v2.30.4-1",
        WARN + "NET/IB: ncclIbCreateQp: mlx5dv_create_qp failed to create QP: Cannot allocate memory",
        VerbsFailure("mlx5dv_create_qp", "Cannot allocate memory", "", None, ()),
    ),
    (
        "v2.29.7-1",
        WARN + "NET/IB: ncclIbResiliencyHandleDeviceFailure: Device 1 marked as failed. (send comm=0x7f)",
        Failover(1),
    ),
    (
        "v2.30.3-1 to v2.30.7-1",
        INFO + "NET/IB: ncclIbPortRecoveryProgress: Marking device 1 as permanently failed (send comm=0x7f01)",
        RecoveryFailure(1),
    ),
    (
        "v2.30.3-1 to v2.30.7-1",
        INFO + "NET/IB: ncclIbResiliencyProgress: Device 1 has been recovered for resiliency context (recv comm=0x7f, "
        "outstandingRecovery=0)",
        Recovered(1),
    ),
    (
        "v2.30.3-1 to v2.30.7-1",
        WARN + "NET/IB: Fatal error. Detected 2 failed devices out of 2 devices on the send communicator (comm=0x7f). "
        "No support for more than a single failed device.",
        FatalError("more than a single failed device"),
    ),
    (
        "v2.30.7-1",
        WARN + "NET/IB: Maximum number of probing attempts (10) reached for request 0x7f (id=3). Cannot post another "
        "probe.",
        FatalError("Maximum number of probing attempts"),
    ),
    (
        "v2.30.7-1",
        WARN + "NET/IB: Could not find a functional device to post the probe for request 0x7f (id=3)",
        FatalError("Could not find a functional device to post the probe for request 0x7f"),
    ),
    (
        "v2.30.7-1",
        WARN + "NET/IB: Could not find a replacement QP for the failed QP with qpIndex=1 (devIndex=1)",
        FatalError("Could not find a replacement QP for the failed QP with qpIndex=1"),
    ),
]

TIMED_OUT = (
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, "
    "NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)
STUCK = (
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. "
    "This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog"
)
WATCHDOG = [
    (
        "PyTorch 2.6",
        "[rank3]:[E626 06:24:45.903881913 ProcessGroupNCCL.cpp:632] " + TIMED_OUT,
        WatchdogTimeout(3, 3, 808, "ALLREDUCE", 600.02, 9801523),
    ),
    (
        "PyTorch 2.6, by the C++ runtime",
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: "
        + TIMED_OUT,
        WatchdogTimeout(None, 3, 808, "ALLREDUCE", 600.02, 9801523),
    ),
    (
        "PyTorch 2.4 and later",
        "[rank7]:[E626 05:14:36.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] " + STUCK,
        WatchdogStall(7, 7, "default_pg", 480),
    ),
    (
        "PyTorch 2.2 and 2.3, where the process ends",
        "[rank7]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 7] [PG 0 Rank 7] " + STUCK,
        WatchdogStall(7, 7, "", 480),
    ),
    (
        "PyTorch 2.1, as reported",
        "[E ProcessGroupNCCL.cpp:915] [Rank 7] " + STUCK.replace("480 seconds", "600seconds"),
        WatchdogStall(None, 7, "", 600),
    ),
]

FAILURES = [*SOCKETS, *LIBFABRIC, *RDMA, *WATCHDOG]
"""Lines that are read."""

NOT_READ = [
    # They follow from a line that is read, or precede one.
    WARN + "[Proxy Service 0] Failed to execute operation Connect from rank 0, retcode 2",
    WARN + "Socket recv failed while polling for opId=0x7f",
    WARN + "NET/Socket : socket progress error",
    WARN + "NET/IB : Unable to open device mlx5_0",
    WARN + "NET/IB: Got CQE with error (devIndex=0, req=0x7f, comm=0x7f (send), wr_id=1, qp_num=2)",
    INFO + "NET/IB: ncclIbPortRecoveryProgress: Marking device 1 as recovered (send comm=0x7f01)",
    INFO + "NET/IB: ncclIbPortRecoveryProgress: Port recovery failed for send comm=0x7f devIndex=1",
    WARN + "GIN Error detected",
    OFI + "Request completed with error",
    OFI + "Fatal: rx buffer recv completed with error",
    "libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address (7)",
    # They are of an earlier state of the same recovery, or of its probes.
    INFO + "NET/IB: ncclIbPortRecoveryPoll: Work completion error on recovery CQ 0x7f: status=IBV_WC_RETRY_EXC_ERR(12)",
    # Ranks disagree on collectives or settings: no failure of the network.
    WARN + f"NET/Socket : peer {PEER} message truncated : receiving 8 bytes instead of 4",
    WARN + "NET/IB : req 0/1 tag 7 peer 192.0.2.4<1> collective mismatch error, local size 8 remote size 4",
    WARN + "socketFinalizeAccept: wrong magic 1 != 2",
    # Sockets within the host, and calls that are not of sockets.
    WARN + "UDS: Sending data over socket /tmp/nccl failed : Connection refused (111)",
    WARN + "Call to setrlimit failed : Operation not permitted",
    WARN + "Call to open failed : No such file or directory",
    # Files and topology.
    OFI + "Error occurred while forming the complete topology XML file path. RC: -1, Buffer Size: 4096, XML dir: /x",
    # The interface of the sockets is no NIC (v2.3.5-5).
    INFO + "NET/IB : Using interface eth0 for sideband communication",
    # A completion without an error, of a build with traces.
    INFO + "Got completion from peer 192.0.2.4<1> with status=0 opcode=1 len=0 wr_id=1 r=0x7f type=1 events={0,0}",
]
"""Lines that are not read, with the reason above each group."""
