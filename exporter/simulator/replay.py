"""A recording of a switch, served as a live agent: `fabric-exporter replay FILE`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from exporter.simulator.snmp_agent import SnmpAgent
from exporter.snmp import recording as snmp_recording

TOLD_PROBLEMS: Final = 5
"""Lines of a recording that could not be read, of which each is told; the others are counted."""


async def replay(
    path: Path, host: str, port: int, *, community: str = "public", tell: Callable[[str], None] = print
) -> None:
    """Serve a recording until cancelled; its values stand still.

    Args:
        path: The recording, see `snmp_recording`.
        host: Address to listen on.
        port: UDP port to listen on; the system chooses one for 0.
        community: The only one that is answered.
        tell: Takes each line of what there is to say.

    Raises:
        OSError: The recording cannot be read, or nobody can listen there.
        ValueError: The recording has no row.
    """
    try:
        recording = await asyncio.to_thread(snmp_recording.load, path)
    except OSError as error:
        raise OSError(f"{path}: the recording cannot be read: {error.strerror or error}") from None
    problems = recording.problems
    for problem in problems[:TOLD_PROBLEMS]:
        tell(f"{path}: {problem}")
    if len(problems) > TOLD_PROBLEMS:
        tell(f"{path}: {len(problems) - TOLD_PROBLEMS} more lines could not be read")
    if not recording.rows:
        raise ValueError(f"{path}: no row in it; a recording has lines of OID|TAG|VALUE")
    async with SnmpAgent(recording.rows, community=community) as agent:
        try:
            address, chosen = await agent.start(host, port)
        except OSError as error:
            raise OSError(
                f"{host}:{port}: nobody can listen there: {error.strerror or error}; choose another --listen"
            ) from None
        tell(f"{len(recording.rows)} rows at {address}:{chosen}, SNMP v2c")
        await asyncio.Event().wait()
