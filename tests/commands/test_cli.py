"""The command line: the effect of each flag, the text of each error, and no traceback."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from exporter import __version__, cli
from exporter.commands import demo
from exporter.config.shard import Shard
from exporter.daemon import daemon, loading, log
from exporter.daemon import settings as daemon_settings
from exporter.daemon.settings import Settings
from exporter.simulator.faults import FAULTS
from exporter.sources.collector import source as collector
from tests.helpers.closed_pipe import without_reader


@pytest.fixture(autouse=True)
def _no_logging(monkeypatch):
    """Leave logging in this process alone."""
    monkeypatch.setattr(log, "set_up", lambda *_: None)


@pytest.fixture
def ran(monkeypatch):
    """Return the settings of daemons, which are not run."""
    found = []

    class Noted:
        def __init__(self, settings):
            found.append(settings)

        async def run(self):
            pass

    monkeypatch.setattr(daemon, "Daemon", Noted)
    return found


# Flags.

FLAGS = [
    (["--config.file", "a.yml"], "config_file", Path("a.yml")),
    (["--web.listen-address", ":1"], "listen_addresses", (":1",)),
    (["--web.listen-address=:1", "--web.listen-address=[::1]:2"], "listen_addresses", (":1", "[::1]:2")),
    (["--web.telemetry-path", "/m"], "telemetry_path", "/m"),
    (["--web.config.file", "w.yml"], "web_config_file", Path("w.yml")),
    (["--web.max-requests", "3"], "max_requests", 3),
    (["--web.max-requests", "0"], "max_requests", sys.maxsize),
    (["--path.sysfs", "/host/sys"], "sysfs", Path("/host/sys")),
    (["--path.dev", "/host/dev"], "dev", Path("/host/dev")),
    (["--path.procfs", "/host/proc"], "procfs", Path("/host/proc")),
    (["--path.nic-replay", "nics"], "nic_replay", Path("nics")),
    (["--shard", "switches-1/3"], "shard", Shard(1, 3)),
]


@pytest.mark.parametrize("command", [[], ["run"]])
@pytest.mark.parametrize(("flags", "setting", "value"), FLAGS)
def test_flags_of_run_the_default_command(ran, monkeypatch, command, flags, setting, value):
    monkeypatch.setattr(daemon_settings, "check_roots", lambda _: None)
    assert cli.main([*command, *flags]) == 0
    (settings,) = ran
    usual = Settings()
    for name in Settings.__dataclass_fields__:
        assert getattr(settings, name) == (value if name == setting else getattr(usual, name))


def test_every_flag_is_in_the_table():
    known = {action.option_strings[-1] for action in cli.parser()._actions[-1].choices["run"]._actions}
    assert known - {flag.partition("=")[0] for flags, _, _ in FLAGS for flag in flags} == {
        "--help",
        "--log.level",
        "--log.format",
        "--web.systemd-socket",  # see tests/daemon/test_socket_activation.py
    }


@pytest.mark.parametrize("command", ["run", "demo"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ("info", "logfmt")),
        (["--log.level", "debug"], ("debug", "logfmt")),
        (["--log.format", "json", "--log.level=error"], ("error", "json")),
    ],
)
def test_flags_of_the_log(ran, monkeypatch, command, flags, expected):
    async def nothing(**_):
        pass

    seen = []
    monkeypatch.setattr(demo, "serve", nothing)
    monkeypatch.setattr(log, "set_up", lambda *given: seen.append(given))
    assert cli.main([command, *flags]) == 0
    assert seen == [expected]


def test_flags_of_the_demo(monkeypatch):
    seen = []

    async def noted(**given):
        seen.append(given)

    monkeypatch.setattr(demo, "serve", noted)
    flags = ["--demo.directory", "d", "--demo.fault", "link-down", "--demo.fault=straggler", "--web.max-requests=1"]
    assert cli.main(["demo", *flags, "--web.telemetry-path", "/m", "--web.config.file", "w"]) == 0
    assert seen == [
        {
            "directory": Path("d"),
            "listen_addresses": (":10315",),
            "telemetry_path": "/m",
            "web_config_file": Path("w"),
            "max_requests": 1,
            "faults": ["link-down", "straggler"],
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no.such-flag"], "unrecognized arguments: --no.such-flag"),
        (["run", "--no.such-flag"], "unrecognized arguments: --no.such-flag"),
        (["--config"], "unrecognized arguments: --config"),  # flags are not guessed from their beginning
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["run", "left", "over"], "unrecognized arguments: left over"),
        (["--config.file"], "expected one argument"),
        (["--log.level", "loud"], "invalid choice: 'loud'"),
        (["--log.format", "xml"], "invalid choice: 'xml'"),
        (["--web.max-requests", "many"], "'many' is not a whole number of 0 or more"),
        (["--web.max-requests=-1"], "'-1' is not a whole number of 0 or more"),
        (["check-config", "--log.level", "info"], "unrecognized arguments: --log.level info"),
        (["demo", "--path.sysfs", "/"], "unrecognized arguments: --path.sysfs /"),
        (["demo", "--demo.fault", "fire"], "'fire'"),
        (["snapshot"], "name a switch as TARGET, or record this host with --host DIR"),
        (["replay"], "the following arguments are required: FILE"),
    ],
)
def test_a_wrong_flag_is_exit_status_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"fabric-exporter {__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", "run", "check-config", "demo"])
def test_help(capsys, command, flag):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*([command] if command else []), flag])
    assert stopped.value.code == 0
    output = " ".join(capsys.readouterr().out.split())
    if command:
        assert cli.COMMANDS[command].HELP in output
    else:
        assert all(f"{name} {module.HELP}" in output for name, module in cli.COMMANDS.items())
    for action in cli.parser()._actions[-1].choices[command or "run"]._actions if command else ():
        assert action.option_strings[-1] in output
        assert action.help
    if command == "demo":
        assert all(f"{name}: {text}" in output for name, text in FAULTS.items())


# Mistakes.


def failed(capsys, arguments):
    """Run a command that fails with exit status 1; return its one line of error."""
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "Traceback" not in line
    return line.removeprefix("fabric-exporter: ")


@pytest.mark.parametrize("command", ["run", "check-config"])
def test_a_wrong_configuration_is_one_line_with_its_place(capsys, tmp_path, command):
    file = tmp_path / "config.yml"
    file.write_text("sources:\n  nic:\n    intervall: 5s\n")
    line = failed(capsys, [command, "--config.file", str(file)])
    assert line == f"{file}:3: sources.nic.intervall: unknown key; did you mean 'interval'?"


@pytest.mark.parametrize("command", ["run", "check-config"])
@pytest.mark.parametrize("flag", ["--config.file", "--web.config.file"])
def test_a_file_that_is_not_there_is_one_line(capsys, command, flag):
    line = failed(capsys, [command, flag, "/nowhere/file.yml"])
    assert line.startswith("/nowhere/file.yml: ")
    assert "No such file or directory" in line


@pytest.mark.parametrize("command", ["run", "check-config"])
def test_a_wrong_web_configuration_is_one_line(capsys, tmp_path, command):
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: a, key_file: b, colour: red}\n")
    line = failed(capsys, [command, "--web.config.file", str(file)])
    assert str(file) in line
    assert "colour" in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--web.listen-address", "localhost"], "--web.listen-address: 'localhost': write :PORT, HOST:PORT"),
        (["--web.listen-address", ":99999"], "the port '99999' is not a number from 0 to 65535"),
        (["--web.telemetry-path", "metrics"], "--web.telemetry-path: 'metrics': start it with /"),
        (["--shard", "5/5"], "--shard: '5/5' is not a shard: the number must be from 0 to 4"),
    ],
)
def test_a_flag_that_cannot_be_used_is_one_line(capsys, flags, message):
    assert message in failed(capsys, flags)


def test_a_port_in_use_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = failed(capsys, ["--web.listen-address", address])
    error, _, remedy = line.partition("; ")
    assert error == f"cannot listen on {address}: the port is in use"
    assert remedy == "stop what uses it, or choose another with --web.listen-address"


@pytest.mark.parametrize("host", ["a..b", ".a", f"{'a' * 64}.example"])
def test_a_malformed_host_name_is_one_line(capsys, tmp_path, host):
    """The resolver raises UnicodeError for it, not OSError."""
    for command in ("run", "demo"):
        line = failed(capsys, [command, "--web.listen-address", f"{host}:9"])
        assert line.startswith(f"cannot listen on {host}:9: the host name is malformed; ")
    recording = tmp_path / "leaf.rec"
    recording.write_text("1.3.6.1.2.1.1.5.0|4|leaf-01\n")
    assert host in failed(capsys, ["replay", str(recording), "--listen", f"{host}:1161"])


@pytest.mark.parametrize("kind", [ValueError, OSError, RuntimeError, KeyError])
def test_a_fault_in_the_program_is_not_hidden(monkeypatch, kind):
    def broken(*_):
        raise kind("a fault")

    monkeypatch.setattr(loading, "check", broken)
    with pytest.raises(kind, match="a fault"):
        cli.main(["check-config", "--config.file", "x"])


def test_a_fault_in_building_a_source_is_not_hidden(monkeypatch, tmp_path):
    def broken(*_):
        raise ValueError("a fault")

    file = tmp_path / "config.yml"
    file.write_text("collector: {slots: 00-ff}\nmqtt: {broker: 127.0.0.1}\n")
    monkeypatch.setattr(collector, "CollectorSource", broken)
    with pytest.raises(ValueError, match="a fault"):
        cli.main(["check-config", "--config.file", str(file)])


def test_a_collector_without_a_broker_is_one_line(capsys, tmp_path):
    file = tmp_path / "config.yml"
    file.write_text("collector: {slots: 00-ff}\n")
    line = failed(capsys, ["check-config", "--config.file", str(file)])
    assert line == "collector: slots: need a broker; set mqtt.broker"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["hook", "--output", "/nowhere/hook.py"], "/nowhere/hook.py: No such file or directory; name a file in"),
        (["demo", "--demo.directory", "/dev/null/x"], "--demo.directory: /dev/null/x: Not a directory; name a"),
        (["replay", "/nowhere"], "/nowhere: the recording cannot be read: No such file or directory"),
        (["replay", "/dev/null", "--listen", ":0"], "--listen: address ':0': the host is empty"),
        (["snapshot", "a:0", "--snmp.community-env", "HOME"], "address 'a:0': port '0' is not a number from 1"),
        (["probe", ""], "give target=HOST or target=HOST:PORT, or the name of a switch"),
    ],
)
def test_what_a_command_is_given_and_cannot_use_is_one_line(capsys, arguments, error):
    assert failed(capsys, arguments).startswith(error)


def test_a_v3_password_that_is_too_short_is_one_line(capsys, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("short")
    flags = ["--snmp.version=3", "--snmp.user=u", "--snmp.auth=sha", f"--snmp.auth-password-file={secret}"]
    line = failed(capsys, ["snapshot", "127.0.0.1:9", *flags])
    assert line == "the authentication password is shorter than 8 bytes, which v3 forbids"


def test_output_that_is_not_read_is_no_traceback(tmp_path):
    """As of `fabric-exporter hook | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "exporter", "hook"], stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")


OUTPUTS = [
    ["hook"],
    ["check-config", "--config.file", "FILE"],
    ["probe", "127.0.0.1:9", "--metrics", "--snmp.community-env=HOME"],
    ["--version"],
]
"""Commands that write to standard output."""


@pytest.mark.parametrize("command", OUTPUTS, ids=lambda words: words[0])
def test_closed_standard_streams_are_no_traceback(tmp_path, command):
    """As of `fabric-exporter hook >&-`: Python has no object for a stream that is closed."""
    file = tmp_path / "config.yml"
    file.write_text("host: a\n")
    words = [str(file) if word == "FILE" else word for word in command]
    for closed in (">&-", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "exporter", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (command[0] == "probe")  # nothing answers there
        assert "Traceback" not in done.stderr
        assert (done.stdout == "") == (closed == ">&-")


@pytest.mark.parametrize(
    "command", [*OUTPUTS, ["estimate", "--bytes", "1GB", "--ranks", "8"]], ids=lambda words: words[0]
)
def test_a_reader_that_ended_changes_no_exit_status(tmp_path, command):
    """As behind `head`; `check` and `ib diff`, whose status 1 is a finding, have tests of their own."""
    file = tmp_path / "config.yml"
    file.write_text("host: a\n")
    done = without_reader(*(str(file) if word == "FILE" else word for word in command))
    assert done.returncode == (command[0] == "probe")  # nothing answers there
    assert "Broken pipe" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", OUTPUTS[:3], ids=lambda words: words[0])
def test_an_output_that_is_full_is_one_line(tmp_path, command):
    file = tmp_path / "config.yml"
    file.write_text("host: a\n")
    words = [str(file) if word == "FILE" else word for word in command]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "exporter", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("fabric-exporter: ")]
    remedy = "free space, or choose another file for it"
    assert lines == [f"fabric-exporter: the output cannot be written: No space left on device; {remedy}"]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr  # of the flush at the end


def test_an_interrupt_is_exit_status_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loading, "check", interrupted)
    assert cli.main(["check-config", "--config.file", "x"]) == 130


# check-config.

GOOD = """\
sources: {nic: {exclude: ["eth0"]}, rdma: {enabled: false}}
switches:
  targets:
    - {name: leaf-01, address: 192.0.2.10, snmp: {community: x}}
    - {name: leaf-02, address: 192.0.2.11, onyx: {username: u, password: x}}
"""


def test_valid_files_are_reported(capsys, tmp_path):
    config, web = tmp_path / "config.yml", tmp_path / "web.yml"
    config.write_text(GOOD)
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    assert cli.main(["check-config", "--config.file", str(config), "--web.config.file", str(web)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    first, second = captured.out.splitlines()
    ways = r"2 targets \(1 by onyx, 1 by snmp\)"
    assert re.fullmatch(re.escape(str(config)) + r": valid; \d sources of this host, " + ways, first)
    assert second == f"{web}: valid"


def test_nothing_to_check(capsys):
    assert failed(capsys, ["check-config"]) == "nothing to check: give --config.file or --web.config.file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ""),
        (GOOD.replace("leaf-02", "leaf-01"), "two targets are named 'leaf-01'"),
        (GOOD.replace("name: leaf-02", 'name: ""'), "the name is empty; give one"),
        (GOOD.replace("192.0.2.10", "192.0.2.10:0"), "port '0' is not a number from 1 to 65535"),
        (GOOD.replace("snmp: {community: x}", "snmp: {}"), "exactly one of community, community_file and"),
        (GOOD.replace("password: x", "password: x, insecure: true, sha256: a"), "exclude each other"),
        *(
            (GOOD.replace("username: u", f"username: u, address: '{address}'"), "onyx.address: ")
            for address in (
                "https://[",
                "https://a:99999",
                "a:0",
                "ftp://a",
                "https://a/b",
                "a b",
                "u:p@a",
                "a..b",
                "[::1",
            )
        ),
        (GOOD.replace("192.0.2.11", "192.0.2.11:99999"), "targets[1].address: '192.0.2.11:99999' is not a host, host:"),
        (GOOD.replace('["eth0"]', r'["eth\0"]'), "the character U+0000 is not allowed"),
        (
            GOOD.replace(", snmp: {community: x}", ""),
            "leaf-01 has no protocol to poll it; give one or more of snmp, onyx",
        ),
    ],
)
def test_switches_that_cannot_be_polled_are_found(capsys, tmp_path, text, message):
    file = tmp_path / "config.yml"
    file.write_text(text)
    if not message:
        assert cli.main(["check-config", "--config.file", str(file)]) == 0
        return
    line = failed(capsys, ["check-config", "--config.file", str(file)])
    assert line.startswith(f"{file}:")
    assert message in line


def test_errors_of_secrets_do_not_contain_them(capsys, tmp_path):
    file = tmp_path / "config.yml"
    file.write_text(GOOD.replace("community: x", "community: [hunter2]"))
    assert "hunter2" not in failed(capsys, ["check-config", "--config.file", str(file)])


# The program as it is installed.


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "exporter", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_exit_statuses_of_the_program(tmp_path):
    file = tmp_path / "config.yml"
    file.write_text("nonsense: 1\n")
    assert run("--version").returncode == 0
    assert run("--nonsense").returncode == 2
    wrong = run("--config.file", str(file))
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (1, "", 1)
    assert "unknown key" in wrong.stderr


def test_version_and_help_load_little():
    """Both are run by scripts of packages: no sources, no web server, no YAML."""
    code = "import sys; from exporter import cli; cli.parser().format_help(); print(*sorted(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert not loaded & {
        "httptools",
        "yaml",
        "httpx",
        "msgspec",
        "exporter.daemon.daemon",
        "exporter.simulator.cluster",
    }


@pytest.mark.parametrize(("flag", "missing"), [("--path.sysfs", "nowhere/class"), ("--path.procfs", "nowhere")])
def test_a_file_system_that_is_not_mounted_is_an_error(tmp_path, capsys, flag, missing):
    """A missing mount would look like a host without hardware, without an alert."""
    assert cli.main([flag, str(tmp_path / "nowhere")]) == 1
    error = f"fabric-exporter: {flag}: there is no directory {tmp_path / missing}; "
    assert capsys.readouterr().err.startswith(error)


@pytest.mark.parametrize("form", log.FORMATS)
def test_log_lines_of_run_have_the_format_of_the_flag(tmp_path, form):
    command = [sys.executable, "-m", "exporter", "--web.listen-address=127.0.0.1:0", "--log.format", form]
    (tmp_path / "class").mkdir()
    command += ["--path.sysfs", str(tmp_path), "--path.nic-replay", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=10)[1].splitlines()
        finally:
            process.kill()
    assert process.returncode == 0
    lines = [line.removesuffix("\n"), *rest]
    if form == "json":
        found = [json.loads(one)["msg"] for one in lines]
    else:
        assert all(re.match(r'ts=\S+ level=[a-z]+ msg=("(?:[^"\\]|\\.)*"|\S+) logger=exporter\.', one) for one in lines)
        found = [re.search(r'msg="?([^"]*)', one)[1].strip() for one in lines]
    assert re.match(r"listening on 127\.0\.0\.1:\d+", found[0])
    assert found[-1].startswith("stopping")
    assert "\x1b" not in "".join(lines)
