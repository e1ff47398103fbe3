#!/bin/bash
# Part of Slurm's Prolog: folders for what a job leaves for the exporter on this node. They belong to the job's user, so
# that no other user can write into them.
folder=${FABRIC_EXPORTER_FOLDER:-/run/fabric-exporter}
[[ ${SLURM_JOB_ID:-} =~ ^[0-9]+$ && ${SLURM_JOB_UID:-} =~ ^[0-9]+$ ]] || exit 0
for place in "$folder/nccl" "$folder/nccl-logs"; do
    # Every user may write to the parent. mkdir fails where anything exists, also a link, which root must not follow.
    mkdir -m 0755 "$place/$SLURM_JOB_ID" 2>/dev/null && chown -h "$SLURM_JOB_UID" "$place/$SLURM_JOB_ID"
done
exit 0 # any other status would drain the node
