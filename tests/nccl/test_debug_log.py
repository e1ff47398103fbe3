"""Lines of NCCL's debug log: every known pattern, by release and behind every launcher's prefix."""

import pytest

from exporter.nccl import debug_log_rules
from exporter.nccl.debug_log import MAX_LINE, ScanStats, parse_line, scan
from exporter.nccl.debug_log_rules import RULES, pci_address
from exporter.nccl.log_facts import (
    Adapter,
    AdapterGdr,
    Adapters,
    AsyncEvent,
    Channel,
    ChannelCounts,
    CommInit,
    CommShape,
    Completion,
    Ece,
    Failover,
    FatalError,
    GpuGdr,
    LogEntry,
    Network,
    NoAdapters,
    NvlsSupport,
    NvlsTree,
    Paths,
    PathToAdapter,
    PeerClosed,
    Provider,
    Recovered,
    RingSummary,
    Setting,
    SpeedChange,
    VerbsFailure,
    Version,
    WatchdogTimeout,
)
from tests.nccl.network_failures import FAILURES

INFO = "h1:10:11 [2] NCCL INFO "
WARN = "h1:10:11 [2] transport/net_ib.cc:93 NCCL WARN "

EXAMPLES = [
    # version
    ("NCCL version 2.4.7+cuda10.0", Version("2.4.7", "10.0")),
    (INFO + "NCCL version 2.27.5+cuda12.9", Version("2.27.5", "12.9")),
    ("NCCL version 2.8.3+cudaCUDA_MAJOR.CUDA_MINOR", Version("2.8.3")),
    ("RCCL version : 2.22.3-develop:abc", Version("2.22.3", "", "RCCL")),
    ("RCCL version 2.18.3+hip5.7 HEAD:abc", Version("2.18.3", "5.7", "RCCL")),
    # adapters
    (
        INFO + "NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.1<0>",
        Adapters((Adapter(0, "mlx5_0", 1, "IB"),)),
    ),
    (
        INFO + "NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_2:2/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        Adapters((Adapter(0, "mlx5_1", 1, "IB"), Adapter(1, "mlx5_2", 2, "RoCE"))),
    ),
    (
        INFO
        + (
            "NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [1]={[2] mlx5_2:1/IB, [3] mlx5_3:1/IB} "
            "[RO]; OOB a:1<0>"
        ),
        Adapters(
            (
                Adapter(0, "mlx5_0", 1, "IB"),
                Adapter(0, "mlx5_1", 1, "IB"),
                Adapter(1, "mlx5_2", 1, "IB"),
                Adapter(1, "mlx5_3", 1, "IB"),
            ),
        ),
    ),
    (
        INFO + "NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [2]mlx5_2:1/IB [RO]; OOB a:1<0>",
        Adapters((Adapter(0, "mlx5_0", 1, "IB"), Adapter(0, "mlx5_1", 1, "IB"), Adapter(1, "mlx5_2", 1, "IB"))),
    ),
    (
        INFO + "NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB ibp25s0:10.0.0.1<0>",
        Adapters((Adapter(0, "mlx5_0", 1, "IB", True),)),
    ),
    (
        INFO + "NET/IB : Using [0]mlx5_0:1:3:1/IB [1]mlx5_1:1:4/IB [RO]; OOB bond0:10.0.0.1<0>",
        Adapters((Adapter(0, "mlx5_0", 1, "IB"), Adapter(1, "mlx5_1", 1, "IB"))),
    ),
    (
        INFO
        + (
            "NET/IB : Using [0]irdma0:1/RoCE [1]rdmaP1111p0s2:1/RoCE [2]ibP111p0s0:1/IB "
            "[3]mlx5_bond_0:1/RoCE [RO]; OOB e:1<0>"
        ),
        Adapters(
            (
                Adapter(0, "irdma0", 1, "RoCE"),
                Adapter(1, "rdmaP1111p0s2", 1, "RoCE"),
                Adapter(2, "ibP111p0s0", 1, "IB"),
                Adapter(3, "mlx5_bond_0", 1, "RoCE"),
            ),
        ),
    ),
    (INFO + "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>", Adapters(())),
    (INFO + "NET/IB : No device found.", NoAdapters("no_device")),
    (INFO + "Failed to open libibverbs.so[.1]", NoAdapters("no_library")),
    ("h1:10:11 [2] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]", NoAdapters("no_library")),
    # networks
    (INFO + "Using network IB", Network("IB")),
    (INFO + "Using network IBext_v8", Network("IBext_v8")),
    (INFO + "Using network AWS Libfabric", Network("AWS Libfabric")),
    (INFO + "NET/OFI Selected Provider is efa", Provider("efa")),
    (INFO + "NET/OFI Selected Provider is tcp;ofi_rxm", Provider("tcp;ofi_rxm")),
    # aws-ofi-nccl v1.14.0 to v1.21.1 (src/nccl_ofi_net.cpp)
    (INFO + "NET/OFI Selected provider is tcp, fabric is 192.0.2.0/20 (found 1 nics)", Provider("tcp")),
    (INFO + "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)", Provider("efa")),
    # channels
    # v2.4.8-1 (src/transport/net.cc) has no GPUs in brackets
    (
        INFO + "Ring 00 : 7 -> 8 [send] via NET/IB/0/GDRDMA",
        Channel(0, 7, "", 8, "", "send", "NET", "IB", 0, True, None),
    ),
    (
        INFO + "Ring 00 : 0[435e00000] -> 1[18100000] [send] via NET/IB/0",
        Channel(0, 0, "435e00000", 1, "18100000", "send", "NET", "IB", 0, False, None),
    ),
    (
        INFO + "Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA",
        Channel(1, 2, "c7000", 0, "87000", "receive", "NET", "IB", 5, True, None),
    ),
    (
        INFO + "Channel 03/0 : 0[0] -> 8[0] [send] via NET/IB/3(5)/GDRDMA(PCI)",
        Channel(3, 0, "0", 8, "0", "send", "NET", "IB", 3, True, 5),
    ),
    (
        INFO + "Channel 03/0 : 0[0] -> 8[0] [send] via NET/IB/3(5)/GDRDMA/Shared",
        Channel(3, 0, "0", 8, "0", "send", "NET", "IB", 3, True, 5),
    ),
    (
        INFO + "Channel 03/0 : 0[0] -> 8[0] [send] via NET/IB/3/Shared",
        Channel(3, 0, "0", 8, "0", "send", "NET", "IB", 3, False, None),
    ),
    (
        INFO + "Channel 07/0 : 1[1] -> 0[0] [send] via NET/AWS Libfabric/1/GDRDMA",
        Channel(7, 1, "1", 0, "0", "send", "NET", "AWS Libfabric", 1, True, None),
    ),
    (
        INFO + "Channel 02/0 : 1[c6000] -> 4[c1000] [receive] via NET/Socket/1 comm 0x95cdeb0 nRanks 08",
        Channel(2, 1, "c6000", 4, "c1000", "receive", "NET", "Socket", 1, False, None),
    ),
    (
        INFO + "Channel 04/0 : 9[1] -> 10[2] via P2P/IPC/read",
        Channel(4, 9, "1", 10, "2", "", "P2P", "IPC/read", None, None, None),
    ),
    (
        INFO + "Channel 04/0 : 9[1] -> 10[2] via P2P/CUMEM",
        Channel(4, 9, "1", 10, "2", "", "P2P", "CUMEM", None, None, None),
    ),
    (
        INFO + "Channel 04 : 9[1000] -> 10[2000] via P2P/direct pointer",
        Channel(4, 9, "1000", 10, "2000", "", "P2P", "direct pointer", None, None, None),
    ),
    (
        INFO + "Channel 04 : 9[1000] -> 10[2000] via P2P/indirect/3[3000]",
        Channel(4, 9, "1000", 10, "2000", "", "P2P", "indirect/3", None, None, None),
    ),
    (
        INFO + "Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
        Channel(0, 0, "0", 1, "1", "", "SHM", "direct/direct", None, None, None),
    ),
    (
        INFO + "Ring 00 : 3[1000] -> 4[2000] via direct shared memory",
        Channel(0, 3, "1000", 4, "2000", "", "SHM", "direct", None, None, None),
    ),
    (
        INFO + "Channel 00/0 : 7[ce000] -> 5[c6000] via P2P/IPC comm 0xfb16e30 nRanks 08",
        Channel(0, 7, "ce000", 5, "c6000", "", "P2P", "IPC", None, None, None),
    ),
    (INFO + "Connected all rings", RingSummary(None, None)),
    (INFO + "Connected all rings, use ring PXN 0 GDR 1", RingSummary(False, True)),
    (INFO + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", AdapterGdr(False, 0, "mlx5_0")),
    (INFO + "NET/IB : GPU Direct RDMA Enabled for HCA 3 'mlx5_bond_0'", AdapterGdr(True, 3, "mlx5_bond_0")),
    (INFO + "GPU Direct RDMA Enabled for GPU 81000 / HCA 1 (distance 6 <= 7), read 1", GpuGdr(True, "81000", 1, 6, 7)),
    (
        INFO + "NET/IB : GPU Direct RDMA Enabled for GPU 435e00000 / HCA 0 (distance 1 < 2), read 0",
        GpuGdr(True, "435e00000", 0, 1, 2),
    ),
    (INFO + "GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)", GpuGdr(False, "ca000", 0, 7, 4)),
    # v2.22.3-1 and later print the topology ID in hexadecimal, its low 56 bits are the index; v2.25.1-1 the rank as GPU
    (INFO + "GPU Direct RDMA Disabled for GPU 0 / HCA a (distance 5 > 4)", GpuGdr(False, "0", 10, 5, 4)),
    (
        INFO + "GPU Direct RDMA Enabled for GPU 3 / HCA 1f (distance 3 <= 4), read 0 mode Default",
        GpuGdr(True, "3", 31, 3, 4),
    ),
    (
        INFO + "GPU Direct RDMA Disabled for GPU 3 / HCA 100000000000003 (distance 5 > 4)",
        GpuGdr(False, "3", 3, 5, 4),
    ),
    # NVLS, SHARP
    (
        INFO + "16 coll channels, 0 collnet channels, 16 nvls channels, 24 p2p channels, 1 p2p channels per peer",
        ChannelCounts(16, 0, 16, 24),
    ),
    (INFO + "2 coll channels, 2 p2p channels, 2 p2p channels per peer", ChannelCounts(2, None, None, 2)),
    # v2.4.8-1 (src/transport/net.cc, net_ib.cc) names the GPU by its CUDA and NVML device
    (
        INFO + "NET/IB : GPU Direct RDMA Disabled for GPU 0[3] / HCA 1 (distance 4 >= 2)",
        GpuGdr(False, "0", 1, 4, 2),
    ),
    (
        INFO + "NET/IB : GPU Direct RDMA Disabled for GPU 0[3] / HCA 1 'mlx5_0' (no module or not supported by GPU)",
        AdapterGdr(False, 1, "mlx5_0"),
    ),
    # v2.29.2-1 to v2.29.7-1 (src/graph/paths.cc)
    (
        INFO + "GPU Direct RDMA Enabled for GPU/0-581632 (rank 3) - NET/0-2 (distance 4 <= 5, read 1, mode Default)",
        GpuGdr(True, "0-581632", 2, 4, 5),
    ),
    (
        INFO
        + "GPU Direct RDMA Disabled for GPU/0-581632 (rank 3) - NET/0-2 ( using PXN via GPU/0-4096, distance 8 > 5)",
        GpuGdr(False, "0-581632", 2, 8, 5),
    ),
    # nccl-rdma-sharp-plugins of HPC-X, which has no releases of its own since 2.1 (src/p2p_plugin.c in April 2026)
    (INFO + "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 10 'mlx5_10", AdapterGdr(True, 10, "mlx5_10")),
    (INFO + "NET/IB : GPU Direct RDMA (nvidia-peermem) enabled for HCA 0 'mlx5_0", AdapterGdr(True, 0, "mlx5_0")),
    (INFO + "Connected NVLS tree", NvlsTree()),
    (INFO + "NVLS multicast support is available on dev 3", NvlsSupport(True, 3)),
    (INFO + "NVLS multicast support is not available on dev 0", NvlsSupport(False, 0)),
    # communicators
    (
        INFO + "comm 0x8e0 rank 36 nranks 64 cudaDev 4 busId 9b000",
        CommInit("0x8e0", 36, 64, None, "0000:9b:00.0", "", ""),
    ),
    (
        INFO
        + (
            "ncclCommInitRank comm 0x8ec0ac0 rank 6 nranks 16 cudaDev 6 nvmlDev 5 busId c8000 commId "
            "0x49bb - Init COMPLETE"
        ),
        CommInit("0x8ec0ac0", 6, 16, 5, "0000:c8:00.0", "0x49bb", "COMPLETE"),
    ),
    (
        INFO
        + (
            "[Rank 6] ncclCommInitRankConfig comm 0x8 rank 6 nranks 16 cudaDev 6 nvmlDev 6 busId "
            "435e00000 commId 0x4 - Init START"
        ),
        CommInit("0x8", 6, 16, 6, "435e:00:00.0", "0x4", "START"),
    ),
    # v2.24.3-1 and v2.21.5-1 (src/init.cc), of a communicator that was split
    (
        INFO + "ncclCommSplit comm 0x55 rank 1 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 parent 0x77 splitCount 2 "
        "color -1183750341 key 0- Init START",
        CommInit("0x55", 1, 8, 0, "0000:18:00.0", "", "START"),
    ),
    (
        INFO + "ncclCommSplit comm 0x55 rank 1 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 parent 0x77 color 3 key 0 "
        "commId 0x99 - Init COMPLETE",
        CommInit("0x55", 1, 8, 0, "0000:18:00.0", "0x99", "COMPLETE"),
    ),
    (INFO + "comm 0x8 rank 6 nRanks 16 nNodes 2 localRanks 8 localRank 6 MNNVL 0", CommShape("0x8", 6, 16, 2)),
    # events of adapters
    (WARN + "NET/IB : Got async event : port error", AsyncEvent("", None, "port error", None)),
    (WARN + "NET/IB : mlx5_0:1 Got async event : port error", AsyncEvent("mlx5_0", 1, "port error", None)),
    (WARN + "NET/IB : mlx5_0:1 Got async error event: port error", AsyncEvent("mlx5_0", 1, "port error", None)),
    # fatal events since v2.23.4-1 (src/transport/net_ib.cc), on a queue with its attributes in v2.30.7-1
    # (src/transport/net_ib/common.cc); the texts are those of ibv_event_type_str
    (
        WARN + "NET/IB : mlx5_4:1 async fatal event on QP (0x7f01): local work queue catastrophic error",
        AsyncEvent("mlx5_4", 1, "local work queue catastrophic error", True),
    ),
    (
        WARN + "NET/IB : mlx5_4:2 async fatal event: local catastrophic error",
        AsyncEvent("mlx5_4", 2, "local catastrophic error", True),
    ),
    (WARN + "NET/IB : mlx5_0:1 async fatal event on CQ (0x7f02): CQ error", AsyncEvent("mlx5_0", 1, "CQ error", True)),
    (
        WARN + "NET/IB : mlx5_0:1 async fatal event on SRQ, unused for now (0x7f03): SRQ catastrophic error",
        AsyncEvent("mlx5_0", 1, "SRQ catastrophic error", True),
    ),
    (
        WARN + "NET/IB : mlx5_0:1 async fatal event on QP (0x7f04) qpn=1211 handle=4 send_cq=3 recv_cq=3 state=6 "
        "sq_psn=77 rq_psn=78: invalid request local work queue error",
        AsyncEvent("mlx5_0", 1, "invalid request local work queue error", True),
    ),
    (
        WARN + "NET/IB : mlx5_0:1 async fatal event on CQ (0x7f05) handle=4 cqe=255: CQ error",
        AsyncEvent("mlx5_0", 1, "CQ error", True),
    ),
    # v2.23.4-1 to v2.27.7-1: IBV_EVENT_GID_CHANGE (18) and later ones have no name
    (WARN + "NET/IB : mlx5_0:1 unknown event type (18)", AsyncEvent("mlx5_0", 1, "GID table changed", False)),
    (WARN + "NET/IB : mlx5_0:1 unknown event type (19)", AsyncEvent("mlx5_0", 1, "unknown event type (19)", False)),
    (WARN + "communicator encountered a fatal error (detected in ncclIbTest)", FatalError("ncclIbTest")),
    (INFO + "NET/IB : mlx5_0:1 speed change detected: 400000 -> N/A Mbps", SpeedChange("mlx5_0", 1)),
    (
        WARN + "NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)",
        AsyncEvent("mlx5_3", 1, "port error(10)", False),
    ),
    (
        WARN + "NET/IB : mlx5_3:1 Got non-fatal async event: port active(9)",
        AsyncEvent("mlx5_3", 1, "port active(9)", False),
    ),
    (INFO + "NET/IB : mlx5_2:1 GID table changed", AsyncEvent("mlx5_2", 1, "GID table changed", False)),
    (
        INFO + "NET/IB : mlx5_2:1 Port speed change detected: 400000 -> 200000 Mbps",
        SpeedChange("mlx5_2", 1),
    ),
    # transfers; v2.8.4-1 has no peer
    (WARN + "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", Completion(12, 129, "", "", "")),
    (
        WARN
        + "NET/IB : Got completion from peer 10.0.0.9<37948> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
        Completion(12, 129, "10.0.0.9", "", "Recv"),
    ),
    (
        WARN
        + "NET/IB : Got completion from peer 10.0.0.9<1> with status=5 opcode=32656 len=32659 vendor err 249 (Recv) "
        "localGid ::ffff:10.1.0.1 remoteGids::ffff:10.1.0.2",
        Completion(5, 249, "10.0.0.9", "", "Recv"),
    ),
    (
        WARN + "NET/IB : Got completion from peer 10.0.0.9<1> with status=12 opcode=0 len=0 vendor err 129 (Send) "
        "localGid fe80::1 remoteGidsfe80::2 hca mlx5_10",
        Completion(12, 129, "10.0.0.9", "mlx5_10", "Send"),
    ),
    (
        WARN
        + "NET/IB: Got completion from peer 10.0.0.9<1> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) "
        "reqSize=0 vendor_err=129 req_type=Send localGid ::1 remoteGids ::2 hca mlx5_1",
        Completion(12, 129, "10.0.0.9", "mlx5_1", "Send"),
    ),
    (
        WARN
        + (
            "NET/IB : Got completion from peer fe80::1%ib0<53249> with error 4, opcode 32564, len 32564, "
            "vendor err 81 (Send)"
        ),
        Completion(4, 81, "fe80::1%ib0", "", "Send"),
    ),
    (WARN + "Call to ibv_create_qp failed", VerbsFailure("ibv_create_qp", "", "", None, ())),
    (
        WARN + "Call to ibv_modify_qp failed with error Network is unreachable",
        VerbsFailure("ibv_modify_qp", "Network is unreachable", "", None, ()),
    ),
    (
        WARN + "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_6:1, curr state "
        "INIT, next state RTR, "
        "local GID index 3, local GID ::1, remote GID ::2",
        VerbsFailure("ibv_modify_qp", "Connection timed out", "mlx5_6", 1, ("INIT", "RTR")),
    ),
    (
        WARN + "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        VerbsFailure("ibv_reg_mr_iova2", "Cannot allocate memory", "", None, ()),
    ),
    (WARN + "ibv_reg_mr 0x7f00 4096 failed", VerbsFailure("ibv_reg_mr", "", "", None, ())),
    (
        WARN + "NET/IB: Device 1 marked as failed. Initiating recovery? No (send comm=0x7f)",
        Failover(1),
    ),
    (WARN + "NET/IB: Device 0 marked as failed. Initiating recovery? Yes (recv comm=0x7f)", Failover(0)),
    (WARN + "NET/IB: Device 1 has been recovered (send comm=0x7f)", Recovered(1)),
    (WARN + "The error is fatal (no devices left). Cannot continue.", FatalError("no devices left")),
    # the rest
    (INFO + "NCCL_IB_TIMEOUT set by environment to 18.", Setting("NCCL_IB_TIMEOUT", "18")),
    (INFO + "NCCL_IB_HCA set to mlx5_2:1,mlx5_0:1", Setting("NCCL_IB_HCA", "mlx5_2:1,mlx5_0:1")),
    (INFO + "NCCL_CROSS_NIC set by environment to 0.", Setting("NCCL_CROSS_NIC", "0")),
    (INFO + "NET/IB: IbDev 4 Port 1 qpn 103534 set_ece={supported=1, vendor_id=0x15b3, options=0x0}", Ece(True)),
    (INFO + "NET/IB: IbDev 4 Port 1 qpn 103534 query_ece={supported=0, vendor_id=0x0}", Ece(False)),
    (
        INFO
        + "GPU/8F000 :GPU/16000 (2/264.000000/NVL) CPU/1 (3/24.000000/PHB) NET/0 (7/9.500000/SYS) NET/4 (4/24.0/PXB)",
        Paths("GPU/8F000", (PathToAdapter(0, 7, 9.5e9, "SYS"), PathToAdapter(4, 4, 24e9, "PXB"))),
    ),
    # v2.23.4-1 (src/graph/paths.cc): IDs with those of systems
    (
        INFO + "GPU/0-8f000 :GPU/0-16000 (2/264.0/NVL) CPU/0-0 (3/24.0/PHB) NET/0-0 (7/9.5/SYS) NET/0-a (4/24.0/PXB)",
        Paths("GPU/0-8f000", (PathToAdapter(0, 7, 9.5e9, "SYS"), PathToAdapter(10, 4, 24e9, "PXB"))),
    ),
    (
        "h1:9:9 [3] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n2.ib<53735>",
        PeerClosed("n2.ib"),
    ),
    # v2.9.9-1 (src/include/socket.h) has no address
    ("h1:9:9 [3] include/socket.h:403 NCCL WARN Net : Connection closed by remote peer", PeerClosed("")),
    # PyTorch
    (
        (
            "[rank118]:[E603 17:48:01.005271823 ProcessGroupNCCL.cpp:632] [Rank 118] Watchdog caught "
            "collective operation timeout: "
            "WorkNCCL(SeqNum=2398459, OpType=ALLREDUCE, NumelIn=8652160, NumelOut=8652160, Timeout(ms)=1800000) "
            "ran for 1800068 milliseconds before timing out."
        ),
        WatchdogTimeout(118, 118, 2398459, "ALLREDUCE", 1800.068, 8652160),
    ),
    (
        (
            "[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=96120, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800555 milliseconds "
            "before timing out."
        ),
        WatchdogTimeout(None, 0, 96120, "BROADCAST", 1800.555, None),
    ),
    (  # an old release of PyTorch, at ProcessGroupNCCL.cpp:587
        (
            "[E ProcessGroupNCCL.cpp:587] [Rank 3] Watchdog caught collective operation timeout: "
            "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1806986 milliseconds before timing out."
        ),
        WatchdogTimeout(None, 3, None, "ALLREDUCE", 1806.986, None),
    ),
    (  # -1 as an unsigned number
        (
            "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=808, OpType=COALESCED, NumelIn=18446744073709551615, "
            "NumelOut=18446744073709551615, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
        ),
        WatchdogTimeout(1, 1, 808, "COALESCED", 600.02, None),
    ),
]


@pytest.mark.parametrize(("line", "fact"), EXAMPLES)
def test_examples_of_log_lines(line, fact):
    entry = parse_line(line.encode())
    assert entry is not None
    assert entry.fact == fact


def test_every_rule_has_an_example():
    lines = [line for line, _ in EXAMPLES] + [line for _, line, _ in FAILURES]
    idle = [
        rule.word + " " + rule.pattern.pattern
        for rule in RULES
        if not any(
            rule.word in line
            and (found := rule.pattern.search(line))
            and rule.build(found) == parse_line(line.encode()).fact
            for line in lines
        )
    ]
    assert idle == []


WRAPPERS = [
    ("{}", None, ""),
    ("[155] {}", 155, ""),
    ("1000: {}", 1000, ""),
    ("[1,12]<stdout>:{}", 12, ""),
    ("[1,7]<stderr>:{}", 7, ""),
    ("2019-06-02T16:13:44.884Z: [1,12]<stdout>:{}", 12, "2019-06-02T16:13:44.884"),
    ("[2026-03-13 22:26:02] {}", None, "2026-03-13 22:26:02"),
    ("1000: [2026-02-02 12:15:56] {}", 1000, "2026-02-02 12:15:56"),
    ("[2026-02-02 12:15:56.123] {}", None, "2026-02-02 12:15:56.123"),
]


@pytest.mark.parametrize(("wrapper", "task", "stamp"), WRAPPERS)
def test_launcher_prefixes_provide_task_and_time(wrapper, task, stamp):
    entry = parse_line(wrapper.format(WARN + "NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)").encode())
    assert entry == LogEntry(AsyncEvent("mlx5_3", 1, "port error(10)", False), "h1", 10, 2, task, stamp)


@pytest.mark.parametrize(
    ("prefix", "host", "pid", "gpu"),
    [
        ("NCCL INFO ", "", None, None),
        (":22901:22901 [0] NCCL INFO ", "", 22901, 0),
        ("...-48:34050:34121 [0] NCCL INFO ", "...-48", 34050, 0),
        ("node-1.example.org:1:2 [15] NCCL INFO ", "node-1.example.org", 1, 15),
        ("h1:10:11 [2] init.cc:120 (ncclInit) NCCL WARN ", "h1", 10, 2),
    ],
)
def test_host_may_be_absent_or_shortened(prefix, host, pid, gpu):
    entry = parse_line((prefix + "Using network Socket").encode())
    assert entry == LogEntry(Network("Socket"), host, pid, gpu, None, "")
    assert entry.fact.tcp


def test_properties_of_facts():
    assert [Network(name).tcp for name in ("Socket", "FastSocket", "IB", "AWS Libfabric")] == [True, True, False, False]
    assert [Provider(name).tcp for name in ("efa", "tcp;ofi_rxm", "sockets")] == [False, True, True]
    assert [Completion(status, None, "", "", "").consequence for status in (12, 5, 4)] == [False, True, False]


@pytest.mark.parametrize(
    "line",
    [
        "iteration 589290/993410 | consumed samples: 1000 |",
        INFO + "Trees [0] 2/-1/-1->1->0",
        INFO + "WANDB_API_KEY set by environment to hunter2.",
        INFO + "NCCL_CONF_SECRET set by environment to hunter2.",
        INFO + "comm 0x8 rank 16 nranks 16 cudaDev 0",
        # v2.22.3-1 (src/init.cc): the end of a communicator
        INFO + "comm 0x8 rank 6 nranks 16 cudaDev 6 busId c8000 - Destroy COMPLETE",
        INFO + "comm 0x8 rank 6 nranks 16 cudaDev 6 busId c8000 - Abort COMPLETE",
        INFO + "Channel 00/04 :    0   1",
        "Got completion from peer",
        "",
    ],
)
def test_unrelated_lines_have_no_fact(line):
    assert parse_line(line.encode()) is None


def test_hostile_lines_are_harmless():
    long = INFO + "Using network " + "x" * MAX_LINE
    stats = ScanStats()
    data = "\n".join([long, INFO + "Using network a\x1b[2J\0b", "NCCL " * 2000, WARN + "Using network IB"]).encode()
    facts = [entry.fact for entry in scan(data, stats)]
    assert facts == [Network("IB")]
    assert (stats.lines, stats.too_long) == (4, 1)
    assert parse_line(b"\xff\xfe NCCL INFO Using network IB\xff") is None
    entry = parse_line(b"ev\x1bil:1:2 [0] NCCL INFO Using network IB\r\n")
    assert entry.host == "il"


def test_scan_finds_facts_between_unrelated_lines():
    text = "\n".join(["noise"] * 5 + [line for line, _ in EXAMPLES] + ["", "NCCL"])
    stats = ScanStats()
    assert [entry.fact for entry in scan(text.encode(), stats)] == [fact for _, fact in EXAMPLES]
    assert stats.lines == len(EXAMPLES) + 7


@pytest.mark.parametrize(
    ("bus", "address"),
    [
        ("c8000", "0000:c8:00.0"),
        ("7000", "0000:07:00.0"),
        ("435e00000", "435e:00:00.0"),
        ("901000", "0009:01:00.0"),
        ("a1014", "0000:a1:01.4"),
        ("", None),
        ("xyz", None),
        ("f" * 13, None),
        ("00fff", None),
    ],
)
def test_bus_ids_become_pci_addresses(bus, address):
    assert pci_address(bus) == address


def test_only_network_settings_are_read():
    assert not any(name.startswith(("NCCL_DEBUG", "NCCL_CONF")) for name in debug_log_rules._NETWORK_VARIABLES)
