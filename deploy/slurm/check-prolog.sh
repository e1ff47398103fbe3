#!/bin/sh
# Prolog of Slurm: drains a node on which one of these checks fails. A prolog that fails drains the node and requeues
# the job, so that only checks belong here whose failure would ruin any job. All else is in the metrics.
#
# In slurm.conf: Prolog=/etc/slurm/prolog.d/*
exporter=${FABRIC_EXPORTER:-fabric-exporter}
# The configuration whose section `expect` gives how many ports and GPUs a node has.
config=${FABRIC_EXPECT:-/etc/fabric-exporter/config.yml}
set --
if [ -r "$config" ]; then
    set -- --expect "$config"
fi

"$exporter" check "$@" \
    --only expected_rdma_ports \
    --only expected_gpus \
    --only pcie_link \
    --only port_rate_siblings \
    --only roce_gid \
    --only infiniband_port \
    >/dev/null 2>&1
# 2 is a fault of the program or of this file, and 127 a host without it: neither drains a node.
[ $? -ne 1 ]
