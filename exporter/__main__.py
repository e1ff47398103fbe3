"""The start of `python -m exporter` and of the command `fabric-exporter`: signals first, then the imports."""

import signal
import sys


def main() -> int:
    """Run a command; returns its exit status.

    SIGHUP would end a daemon that has not started yet: it remains pending until `run` receives it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from exporter.cli import main as run_command  # noqa: PLC0415  # see above

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
