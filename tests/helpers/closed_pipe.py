"""Commands whose standard output is a pipe that nothing reads any more, as behind `head`."""

import os
import subprocess
import sys

from tests.helpers.paths import ROOT


def without_reader(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the exporter whose first write to standard output fails with EPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "exporter", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # also in another working directory
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, text=True, check=False)
    finally:
        os.close(writer)
