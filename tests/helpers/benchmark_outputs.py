"""Outputs of nccl-tests and perftest, written as these programs do."""

import json

GIB = 1 << 30
MIB = 1 << 20

HEAD = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong"


def nccl_table(
    hosts, bandwidths, *, gpus=8, test="all_reduce_perf", model="NVIDIA H100 80GB HBM3", wrong=0, factor=None
):
    """Return the output of one run.

    Args:
        hosts: Hosts in the order of their ranks; None for an output without ranks.
        bandwidths: Bus bandwidth in GB/s by size in bytes; in place it is the same.
        gpus: Ranks of each host.
        test: Name of the test; None for an output that has none, as those of 2024.
        model: Model of the devices.
        wrong: Wrong elements of the last row.
        factor: Bus bandwidth over algorithm bandwidth; by default that of AllReduce.
    """
    ranks = gpus * len(hosts or (1,))
    lines = [f"# Collective test starting: {test}"] if test else []
    lines += [
        f"#  Rank {host * gpus + gpu:2} Group  0 Pid {1000 + gpu} on {name} device {gpu:2} [0000:{gpu:02x}:00] {model}"
        for host, name in enumerate(hosts or ())
        for gpu in range(gpus)
    ]
    lines.append(HEAD)
    redop = "sum" if test is None or "reduce" in test else "none"
    for place, (size, bandwidth) in enumerate(bandwidths.items(), 1):
        algorithm = bandwidth / (factor or 2 * (ranks - 1) / ranks or 1)
        half = f"{size / algorithm / 1e3:8.1f} {algorithm:7.2f} {bandwidth:7.2f}"
        bad = wrong if place == len(bandwidths) else 0
        lines.append(f"{size:12} {size // 4:12} float {redop:>7}      -1 {half} {bad:6} {half} {0:6}")
    lines.append(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    return "\n".join([*lines, "# Avg bus bandwidth    : 1.0", ""])


def nccl_json(hosts, bandwidths, *, gpus=8, test="all_reduce_perf"):
    """Return the same as the document of -J."""
    ranks = gpus * len(hosts)
    devices = [
        {"rank": host * gpus + gpu, "hostname": name, "device_info": "NVIDIA H100 80GB HBM3"}
        for host, name in enumerate(hosts)
        for gpu in range(gpus)
    ]
    results = []
    for size, bandwidth in bandwidths.items():
        algorithm = bandwidth / (2 * (ranks - 1) / ranks)
        half = {"time": size / algorithm / 1e3, "alg_bw": algorithm, "bus_bw": bandwidth, "nwrong": 0}
        results.append({"size": size, "count": size // 4, "type": "float", "redop": "sum"} | {"out_of_place": half})
    document = {"version": 3, "args": [f"/opt/{test}"], "config": {"devices": devices}, "results": results}
    return json.dumps(document | {"env": ["TOKEN=hunter2"], "out_of_bounds": {"count": 0}})


def latency_table(ends, microseconds, *, test="RDMA_Write Latency", link="IB", p99=None, size=2, iterations=1000):
    """Return the output of ib_write_lat, as perftest 4.5 prints it.

    Args:
        ends: The LIDs of both ports, or on Ethernet their IPv4 addresses.
        microseconds: Typical latency.
        test: Title.
        link: "IB" or "Ethernet".
        p99: 99th percentile in microseconds.
        size: Bytes of the message.
        iterations: Number of messages.
    """
    tail = microseconds * 1.1 if p99 is None else p99
    return (
        perftest_head(test, link, ends)
        + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% per"
        "centile[usec]   99.9% percentile[usec] \n"
        f" {size:<7} {iterations}          {microseconds * 0.9:<7.2f}        {tail * 2:<7.2f}      {microseconds:<7.2f}"
        f"  \t       {microseconds:<7.2f}     \t{0.05:<7.2f}\t\t{tail:<7.2f} \t\t{tail * 2:<7.2f}\n" + RULE
    )


def bandwidth_table(ends, gigabits, *, test="RDMA_Write BW", link="IB", size=65536, unit="Gb/sec"):
    """Return the output of ib_write_bw; the bandwidth is in the given unit."""
    return (
        perftest_head(test, link, ends)
        + f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n"
        "Conflicting CPU frequency values detected: 3393.700000 != 1500.000000. CPU Frequency is not max.\n"
        f" {size:<7}    {5000:<10}       {0.0:<7.2f}            {gigabits:<7.2f}\t\t   {0.1:<7.6f}\n" + RULE
    )


RULE = "-" * 87 + "\n"


def perftest_head(test, link, ends):
    """Return what perftest prints before its table."""
    lines = [f"                    {test} Test", " Dual-port       : OFF\t\tDevice         : mlx5_0"]
    lines += [" Connection type : RC\t\tUsing SRQ      : OFF", f" Link type       : {link}", RULE.rstrip()]
    for name, end in zip(("local", "remote"), ends, strict=False):
        lid = f"{end:#04x}" if link == "IB" else "0000"
        lines.append(f" {name} address: LID {lid} QPN 0x0901 PSN 0x5e30c8 RKey 0x2000201 VAddr 0x007fe663d20000")
        if link != "IB":
            octets = ":".join(f"{int(part):02}" for part in end.split("."))
            lines.append(f" GID: 00:00:00:00:00:00:00:00:00:00:255:255:{octets}")
    return "\n".join([*lines, RULE])
