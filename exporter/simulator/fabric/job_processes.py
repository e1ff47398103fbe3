"""Identities of the processes of the fabric's job, as Inspector and NCCL's logs both have them."""

from hashlib import blake2b

FIRST_PID = 4000

PIDS_A_RUN = 1000


def pid(run: int, rank: int) -> int:
    """Return the process ID of a rank in a run of the job."""
    return FIRST_PID + PIDS_A_RUN * run + rank


def communicator_hash(run: int, communicator: int) -> str:
    """Return the hash of a communicator, which Inspector calls `id` and NCCL's log `commId`."""
    return f"0x{blake2b(f'{run} {communicator}'.encode(), digest_size=7).hexdigest()}"
