"""The container image: its health check, and what makes each build of it the same."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.deploy.test_deploy import instructions
from tests.helpers.stack import free_port


def test_bytecode_of_the_image_is_the_same_in_each_build() -> None:
    """pip's own has the time of each file, which is that of its installation."""
    installs = [
        part for run in instructions("RUN") for part in run.split("&&") if "fabric-exporter/bin/pip install" in part
    ]
    assert len(installs) == 2
    assert all("--no-compile" in one for one in installs)
    (compiled,) = [part for run in instructions("RUN") for part in run.split("&&") if "compileall" in part]
    assert "--invalidation-mode unchecked-hash" in compiled
    assert {"SOURCE_DATE_EPOCH=0", "PYTHONHASHSEED=0"} <= set(instructions("ARG"))


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (None, 1)])
def test_the_health_check_of_the_image_asks_the_daemon(status: int | None, expected: int) -> None:
    """In exec form, by the Python of the image; with the port of a server of this test, or of none."""
    (check,) = instructions("HEALTHCHECK")
    program, *arguments = json.loads(check.partition("CMD ")[2])
    assert program == "python"
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status or 0)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port if status else free_port()
        command = [sys.executable, *(one.replace(":10315/", f":{port}/") for one in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
    assert (done.returncode, asked) == (expected, ["/-/healthy"] if status else [])
