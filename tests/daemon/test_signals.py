"""Signals while the program starts: SIGHUP is kept until the daemon can reload, SIGTERM ends the process."""

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

PATIENCE = 60.0


def masks(pid):
    """Return which signals a process blocks and which it handles, as the kernel shows them (proc_pid_status(5))."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(lines["SigBlk"], 16), int(lines["SigCgt"], 16)


def has(mask, number):
    return bool(mask >> (number - 1) & 1)


def until(what, condition):
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end, what
        sleep(0.001)


@pytest.fixture
def started(tmp_path):
    """Start the daemon, and return it with the file of its log as soon as it blocks SIGHUP."""
    config = tmp_path / "config.yml"
    config.write_text("host: gpu-1\n")
    log = tmp_path / "log"
    for name in ("class", "net"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "exporter", "--config.file", config, "--web.listen-address", "127.0.0.1:0"]
    command += ["--path.sysfs", tmp_path, "--path.procfs", tmp_path, "--path.nic-replay", tmp_path]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        until("SIGHUP is blocked", lambda: has(masks(process.pid)[0], signal.SIGHUP))
        yield process, log
        process.kill()


def test_a_hangup_at_the_start_is_a_reload_when_the_daemon_runs(started):
    process, log = started
    process.send_signal(signal.SIGHUP)
    assert not has(masks(process.pid)[1], signal.SIGHUP), "sent before there was a handler"
    until("it listens", lambda: b"listening on" in log.read_bytes())
    until("it reloads", lambda: b"configuration reloaded" in log.read_bytes())
    assert process.poll() is None
    process.send_signal(signal.SIGHUP)
    until("it reloads again", lambda: log.read_bytes().count(b"configuration reloaded") == 2)
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_a_termination_at_the_start_ends_the_process(started):
    process, _ = started
    process.terminate()
    assert process.wait(PATIENCE) in (-signal.SIGTERM, 0)


def test_other_commands_end_at_a_hangup(tmp_path):
    """A terminal that closes sends it."""
    tmp_path.joinpath("empty").write_text("")
    code = "import signal, sys; from exporter.cli import main; sys.argv = ['fabric-exporter', 'hook'];"
    code += "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP}); main();"
    code += "print(signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
