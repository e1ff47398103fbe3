"""A pytest plugin that counts skipped tests by what they need; `make test` loads it.

A test may be skipped because this machine lacks something, with the reason `needs snmpd`. Any other reason means a test
that never runs, and fails the run. With pytest-xdist each worker collects every module, so a module that is skipped as
a whole is counted once, by its name.
"""

from collections import Counter

import pytest

PREFIX = "Skipped: needs "


class _Skips:
    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._modules: set[str] = set()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note(report.nodeid, report.longrepr)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and report.nodeid not in self._modules:
            self._modules.add(report.nodeid)
            self._note(report.nodeid, report.longrepr)

    def _note(self, name: str, why: object) -> None:
        reason = why[2] if isinstance(why, tuple) else str(why)
        if reason.startswith(PREFIX):
            self.missing[reason.removeprefix(PREFIX)] += 1
        else:
            self.wrong.append(f"{name}: {reason}")

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("skipped on this machine")
        for what, count in sorted(self.missing.items()):
            terminalreporter.write_line(f"{count} skipped: needs {what}")
        if not self.missing:
            terminalreporter.write_line("nothing")
        for line in self.wrong:
            terminalreporter.write_line(f"ERROR: skipped for a reason other than something missing: {line}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Skips(), "skips")
