"""The exporter as a process of its own, whose clocks a test can move and which it can stop."""

import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.helpers.stack import answers, free_port, process

_CLOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

/* Offsets in ns, which the test writes: of the time of day, and of the time that a suspension lasted. */
static volatile const int64_t *offsets(void) {
    static volatile const int64_t *found;
    if (!found) {
        int file = open(getenv("TEST_CLOCKS"), O_RDONLY | O_CLOEXEC);
        found = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
    }
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    int64_t added = 0;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) added = offsets()[0] + offsets()[1];
    else if (clock == CLOCK_BOOTTIME) added = offsets()[1];
    if (added) {
        int64_t all = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + added;
        now->tv_sec = all / 1000000000;
        now->tv_nsec = all % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
"""


class Clocks:
    """The clocks of a process that a test moves; it needs a C compiler.

    Args:
        compiler: Path of the compiler.
        folder: For its files.
    """

    def __init__(self, compiler: str, folder: Path) -> None:
        self._file, library = folder / "clocks", folder / "clocks.so"
        source = folder / "clocks.c"
        source.write_text(_CLOCKS)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._stepped = self._suspended = 0.0
        self._file.write_bytes(bytes(16))
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCKS": str(self._file)}

    def step(self, seconds: float) -> None:
        """Step the time of day, as an administrator or NTP does."""
        self._stepped += seconds
        self._write()

    def suspend(self, seconds: float) -> None:
        """Let time pass in which the machine was suspended: CLOCK_MONOTONIC does not count it (clock_gettime(2))."""
        self._suspended += seconds
        self._write()

    def _write(self) -> None:
        with self._file.open("r+b") as file:
            file.write(struct.pack("=qq", round(self._stepped * 1e9), round(self._suspended * 1e9)))


class Exporter:
    """A running exporter.

    Attributes:
        process: Its process.
        url: Where it listens.
    """

    def __init__(self, running: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        self.process, self.url, self._log = running, url, log

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()


@contextlib.contextmanager
def exporter(
    folder: Path, config: Path, *flags: object, environment: Mapping[str, str] | None = None, address: str = ""
) -> Iterator[Exporter]:
    """Run the exporter until the end of the block; it is ready at its beginning."""
    address = address or f"127.0.0.1:{free_port()}"
    log = folder / "exporter.log"
    command = [sys.executable, "-m", "exporter", "--config.file", config, "--web.listen-address", address, *flags]
    with process(log, "/usr/bin/env", *(f"{k}={v}" for k, v in (environment or {}).items()), *command) as running:
        answers(f"http://{address}/-/healthy", running, log)
        yield Exporter(running, f"http://{address}", log)


def flags_of(root: Path) -> list[object]:
    """Return the flags for a host below a folder, with empty trees where there are none."""
    for name in ("sys/class", "proc", "nic"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return ["--path.sysfs", root / "sys", "--path.procfs", root / "proc", "--path.nic-replay", root / "nic"]
