#!/bin/bash
# Part of Slurm's Epilog: removes what a job left for the exporter on this node. /run is memory.
folder=${FABRIC_EXPORTER_FOLDER:-/run/fabric-exporter}
[[ ${SLURM_JOB_ID:-} =~ ^[0-9]+$ ]] || exit 0
sleep "${FABRIC_EXPORTER_WAIT:-6}" # the exporter reads every five seconds
rm -rf --one-file-system -- "$folder/nccl/$SLURM_JOB_ID" "$folder/nccl-logs/$SLURM_JOB_ID"
exit 0 # any other status would drain the node
