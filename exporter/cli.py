"""Commands and flags, nothing else. The flags are those of Prometheus's own exporters."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from exporter import __version__
from exporter.daemon import log
from exporter.simulator.faults import FAULTS

if TYPE_CHECKING:
    from exporter.commands.ib import FabricAccess
    from exporter.sources.switch.options import Snmp

COMMANDS = {
    "run": "serve metrics (what the bare command does)",
    "check-config": "check the configuration files, say what is wrong, and exit with 1",
    "demo": "serve simulated devices with traffic that moves, to look at without hardware",
    "probe": "ask one switch once, and say how it went",
    "snapshot": "record what a switch says by SNMP, without names and addresses, for a report",
    "replay": "serve such a recording as a switch on loopback",
    "hook": "write out fabric_timing.py, which tells the collectives of a training job by one line in it",
    "ib": "print an InfiniBand fabric, or how it differs from a saved one",
}

IB_COMMANDS = {
    "topology": "look at the fabric once and print it, with what is degraded, erring or not active",
    "diff": "print how the fabric, or a second file, differs from one that `ib topology --json` saved",
}

IB_LIMITS = {
    "window": "datagrams in flight (default 64)",
    "per_destination": "of them to one node (default 1)",
    "per_second": "datagrams sent in a second, at most (default 10000)",
    "retries": "tries after the first (default 2)",
}
"""Keys of `sources.ibfabric` that are whole numbers, as flags."""

PROBE_SECONDS = 60.0
"""That somebody at a terminal waits for a switch."""

SNMP_FLAGS = {
    "version": "version of SNMP: 1, 2c (default) or 3",
    "community_file": "file of the community",
    "community_env": "environment variable of the community",
    "user": "user of version 3",
    "auth": "how its messages are signed: md5, sha, sha224, sha256, sha384 or sha512",
    "auth_password_file": "file of the password of that",
    "priv": "how they are encrypted: des, aes, aes192, aes256, aes192c or aes256c",
    "priv_password_file": "file of the password of that",
}
"""Keys of a target's `snmp`, as flags of `probe` and `snapshot`; passwords are none, since others can read flags."""


def parser() -> argparse.ArgumentParser:
    """Give the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="fabric-exporter",
        description="Prometheus exporter for the network of GPU clusters: NICs, RDMA ports, switches, NCCL.",
        epilog="Without a command it runs. `fabric-exporter COMMAND --help` lists a command's flags.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fabric-exporter {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    made = {
        name: commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for name, text in COMMANDS.items()
    }
    for name in ("run", "demo"):
        _add_web_flags(made[name])
        _add_log_flags(made[name])
    _add_config_flag(made["run"])
    _add_path_flags(made["run"])
    _add_config_flag(made["check-config"])
    made["check-config"].add_argument(
        "--web.config.file", dest="web_config_file", type=Path, metavar="FILE", help="web configuration file to check"
    )
    made["demo"].add_argument(
        "--demo.directory",
        dest="directory",
        type=Path,
        metavar="DIR",
        help="new or empty folder for the simulated host, kept at the end; a temporary one by default",
    )
    _add_shard_flag(made["run"])
    _add_probe_flags(made["probe"])
    _add_snapshot_flags(made["snapshot"])
    _add_replay_flags(made["replay"])
    made["hook"].add_argument("--output", type=Path, metavar="FILE", help="where to (default standard output)")
    _add_ib_commands(made["ib"])
    faults = made["demo"]
    faults.formatter_class = argparse.RawDescriptionHelpFormatter  # which would break names at their hyphens
    width = max(map(len, FAULTS)) + 1
    faults.epilog = "faults:\n" + "\n".join(f"  {name + ':':{width}} {text}" for name, text in FAULTS.items())
    faults.add_argument(
        "--demo.fault",
        dest="faults",
        action="append",
        default=[],
        choices=FAULTS,
        metavar="FAULT",
        help="something that is wrong, one of those below; repeatable",
    )
    return top


def _add_config_flag(to: argparse.ArgumentParser) -> None:
    to.add_argument("--config.file", dest="config_file", type=Path, metavar="FILE", help="configuration file (YAML)")


def _add_shard_flag(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--shard",
        metavar="NUMBER/COUNT",
        help="which of several exporters this is, from 0, of how many: each polls its share of the switches; NUMBER may"
        " be the name of a StatefulSet's pod (default $FABRIC_SHARD, else all)",
    )


def _add_probe_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument("target", metavar="TARGET", help="switch of the configuration, or HOST or HOST:PORT")
    _add_config_flag(to)
    to.add_argument("--module", default="", metavar="NAME", help="module of the configuration, or profile of SNMP")
    to.add_argument("--auth", default="", metavar="NAME", help="credentials of the configuration")
    to.add_argument("--metrics", action="store_true", help="print the metrics, and the rest to standard error")
    _add_snmp_flags(to)


def _add_snapshot_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument("target", metavar="TARGET", help="switch of the configuration, or HOST or HOST:PORT")
    to.add_argument("output", nargs="?", type=Path, metavar="FILE", help="where to (default standard output)")
    to.add_argument("--raw", action="store_true", help="keep names, addresses and serial numbers")
    _add_config_flag(to)
    _add_snmp_flags(to)


def _add_snmp_flags(to: argparse.ArgumentParser) -> None:
    for name, text in SNMP_FLAGS.items():
        to.add_argument(f"--snmp.{name.replace('_', '-')}", dest=f"snmp_{name}", metavar="VALUE", help=text)


def _add_replay_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument("recording", type=Path, metavar="FILE", help="recording, as snapshot makes it")
    to.add_argument(
        "--listen", default="127.0.0.1:1161", metavar="ADDRESS", help="where to answer (default 127.0.0.1:1161)"
    )
    to.add_argument("--community", default="public", help="community that is answered (default public)")


def _add_ib_commands(to: argparse.ArgumentParser) -> None:
    commands = to.add_subparsers(dest="ib_command", metavar="COMMAND", required=True)
    made = {
        name: commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for name, text in IB_COMMANDS.items()
    }
    form = made["topology"].add_mutually_exclusive_group()
    form.add_argument("--dot", dest="form", action="store_const", const="dot", help="print a graph for Graphviz")
    form.add_argument("--json", dest="form", action="store_const", const="json", help="print what `ib diff` reads")
    made["topology"].set_defaults(form="tree")
    made["topology"].add_argument(
        "--no-counters", dest="counters", action="store_false", help="do not ask ports what errors they counted"
    )
    made["diff"].add_argument("before", type=Path, metavar="FILE", help="fabric that was saved")
    made["diff"].add_argument(
        "after", nargs="?", type=Path, metavar="FILE2", help="one saved later (default the fabric as it is now)"
    )
    made["diff"].add_argument("--json", dest="as_json", action="store_true", help="print it for programs")
    for command in made.values():
        _add_ib_flags(command)


def _add_ib_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument("--device", default="", metavar="NAME", help="adapter to look from (default the first active one)")
    to.add_argument("--port", type=int, metavar="NUMBER", help="port of it (default the first active one)")
    to.add_argument("--m-key-file", dest="m_key_file", metavar="FILE", help="file of the M_Key of a protected fabric")
    to.add_argument("--timeout", metavar="DURATION", help="time to wait for an answer (default 500ms)")
    for name, text in IB_LIMITS.items():
        to.add_argument(f"--{name.replace('_', '-')}", dest=name, type=int, metavar="NUMBER", help=text)


def _add_web_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        action="append",
        metavar="ADDRESS",
        help="address to listen on, repeatable (default :10315)",
    )
    to.add_argument(
        "--web.telemetry-path",
        dest="telemetry_path",
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (default /metrics)",
    )
    to.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="web configuration file: TLS and users, as Prometheus's exporter-toolkit has it",
    )
    to.add_argument(
        "--web.max-requests",
        dest="max_requests",
        type=_max_requests,
        default=40,
        metavar="N",
        help="scrapes served at the same time, 0 for any number (default 40)",
    )


def _max_requests(text: str) -> int:
    """Read a number of requests, where 0 stands for any, as with other exporters."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text) or sys.maxsize


def _add_path_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--path.sysfs",
        dest="sysfs",
        type=Path,
        default=Path("/sys"),
        metavar="DIR",
        help="where sysfs is (default /sys)",
    )
    to.add_argument(
        "--path.procfs",
        dest="procfs",
        type=Path,
        default=Path("/proc"),
        metavar="DIR",
        help="where procfs is (default /proc)",
    )
    to.add_argument(
        "--path.nic-replay",
        dest="nic_replay",
        type=Path,
        metavar="DIR",
        help="answer for NICs from recordings in this folder instead of the kernel",
    )


def _add_log_flags(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--log.level",
        dest="log_level",
        default="info",
        choices=(*log.LEVELS, *log.ALIASES),
        help="least level to log (default info)",
    )
    to.add_argument(
        "--log.format",
        dest="log_format",
        default="logfmt",
        choices=log.FORMATS,
        help="form of log lines (default logfmt)",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Exit status: 0 done, 1 wrong configuration or nothing to listen on, 2 wrong flags; of `ib diff` that of diff.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in {"-h", "--help", "--version"}):
        given.insert(0, "run")
    chosen = parser().parse_args(given)
    try:
        return _COMMANDS[chosen.command](chosen)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        return _fail(error)
    except Exception as error:
        if type(error).__name__ not in {"ConfigError", "WebConfigError"}:
            raise
        return _fail(error)


def _fail(error: Exception) -> int:
    print(f"fabric-exporter: {error}", file=sys.stderr)  # noqa: T201  # what a command says to its user
    return 1


def _run(chosen: argparse.Namespace) -> int:
    from exporter.config.shard import Shard  # noqa: PLC0415  # likewise
    from exporter.daemon.daemon import Daemon, Settings, check_roots  # noqa: PLC0415  # `--help` and `--version` need none of it

    log.set_up(chosen.log_level, chosen.log_format)
    try:
        shard = Shard.from_environment() if chosen.shard is None else Shard.parse(chosen.shard)
    except ValueError as error:
        raise ValueError(f"--shard: {error}" if chosen.shard is not None else str(error)) from None
    settings = Settings(
        chosen.config_file,
        tuple(chosen.listen_addresses or [":10315"]),
        chosen.telemetry_path,
        chosen.web_config_file,
        chosen.max_requests,
        chosen.sysfs,
        chosen.procfs,
        chosen.nic_replay,
        shard,
    )

    check_roots(settings)

    async def serve() -> None:
        await Daemon(settings).run()

    asyncio.run(serve())
    return 0


def _check_config(chosen: argparse.Namespace) -> int:
    from exporter.daemon.daemon import check  # noqa: PLC0415  # `--help` and `--version` need none of it

    if chosen.config_file is None and chosen.web_config_file is None:
        raise ValueError("nothing to check: give --config.file or --web.config.file")
    for line in check(chosen.config_file, chosen.web_config_file):
        print(line)  # noqa: T201  # what a command says to its user
    return 0


def _demo(chosen: argparse.Namespace) -> int:
    from exporter.commands import demo  # noqa: PLC0415  # only the demo needs simulated devices

    log.set_up(chosen.log_level, chosen.log_format)
    asyncio.run(
        demo.run(
            directory=chosen.directory,
            listen_addresses=tuple(chosen.listen_addresses or [":10315"]),
            telemetry_path=chosen.telemetry_path,
            web_config_file=chosen.web_config_file,
            max_requests=chosen.max_requests,
            faults=chosen.faults,
        )
    )
    return 0


def _probe(chosen: argparse.Namespace) -> int:
    from exporter.daemon import daemon  # noqa: PLC0415  # `--help` and `--version` need none of it
    from exporter.daemon.probe import RefusedError  # noqa: PLC0415  # likewise
    from exporter.outputs.text import Renderer  # noqa: PLC0415  # likewise

    async def ask() -> int:
        prober = daemon.prober(daemon.load_config(chosen.config_file), trusted=True)
        auth = chosen.auth
        if (snmp := _snmp_of(chosen)) is not None:
            auth = prober.add_auth(snmp)
        try:
            outcome = await prober.probe(chosen.target, chosen.module, auth, PROBE_SECONDS)
        except RefusedError as error:
            raise ValueError(str(error)) from None
        finally:
            await prober.close()
        if chosen.metrics:
            sys.stdout.writelines(part.decode() for part in Renderer(openmetrics=False).render(outcome.tables))
        print(outcome.story, file=sys.stderr if chosen.metrics else sys.stdout)
        return 0 if outcome.good else 1

    return asyncio.run(ask())


def _snapshot(chosen: argparse.Namespace) -> int:
    from exporter.commands import recordings  # noqa: PLC0415  # only this command needs it
    from exporter.daemon.daemon import load_config  # noqa: PLC0415  # likewise

    options = recordings.SnapshotOptions(chosen.target, chosen.output, chosen.raw, _snmp_of(chosen))
    switches = None if chosen.config_file is None else load_config(chosen.config_file).sources["switch"]
    asyncio.run(recordings.take_snapshot(options, switches))
    return 0


def _snmp_of(chosen: argparse.Namespace) -> "Snmp | None":
    """Give how the flags say that a switch is asked; None where they say nothing."""
    from exporter.config.yaml_reader import convert  # noqa: PLC0415  # `--help` and `--version` need none of it
    from exporter.sources.switch.options import Snmp  # noqa: PLC0415  # likewise

    given = {name: value for name in SNMP_FLAGS if (value := getattr(chosen, f"snmp_{name}")) is not None}
    made: Snmp | None = convert(given, Snmp, "--snmp.") if given else None
    return made


def _replay(chosen: argparse.Namespace) -> int:
    from exporter.commands import recordings  # noqa: PLC0415  # only this command needs it

    asyncio.run(recordings.serve_replay(chosen.recording, chosen.listen, chosen.community))
    return 0


def _hook(chosen: argparse.Namespace) -> int:
    text = (resources.files("exporter.hook") / "fabric_timing.py").read_text(encoding="utf-8")
    if chosen.output is None:
        sys.stdout.write(text)
    else:
        chosen.output.write_text(text, encoding="utf-8")
    return 0


def _ib(chosen: argparse.Namespace) -> int:
    from exporter.commands import ib  # noqa: PLC0415  # only this command needs it

    try:
        asking = _asking(chosen)
    except ValueError as error:
        _fail(ValueError(f"--{str(error).replace('_', '-')}"))
        return ib.FAILED
    if chosen.ib_command == "diff":
        return ib.diff(asking, chosen.before, chosen.after, as_json=chosen.as_json)
    return ib.topology(asking, chosen.form, counters=chosen.counters)


def _asking(chosen: argparse.Namespace) -> "FabricAccess":
    """Give how the flags say that a fabric is asked.

    Raises:
        ValueError: A limit is none; the text begins with its key.
    """
    from exporter.commands.ib import FabricAccess  # noqa: PLC0415  # `--help` and `--version` need none of it
    from exporter.config.units import Duration  # noqa: PLC0415  # likewise
    from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice  # noqa: PLC0415  # likewise

    limits = {name: value for name in IB_LIMITS if (value := getattr(chosen, name)) is not None}
    if chosen.timeout is not None:
        try:
            limits["timeout"] = Duration.parse(chosen.timeout)
        except ValueError as error:
            raise ValueError(f"timeout is {chosen.timeout!r}; {error}") from None
    options = IbFabricOptions(m_key_file=chosen.m_key_file, **limits)
    return FabricAccess(PortChoice(device=chosen.device, port=chosen.port), options)


_COMMANDS = {
    "run": _run,
    "check-config": _check_config,
    "demo": _demo,
    "probe": _probe,
    "snapshot": _snapshot,
    "replay": _replay,
    "hook": _hook,
    "ib": _ib,
}


if __name__ == "__main__":
    sys.exit(main())
