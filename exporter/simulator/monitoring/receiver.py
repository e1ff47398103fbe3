"""A receiver of Alertmanager's messages, and the lines that are printed of them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from exporter.outputs.http_server import Application
from exporter.outputs.reply import Reply, text
from exporter.outputs.request import Request

MAX_MESSAGE = 4 << 20
"""Bytes of a message of Alertmanager."""

UNPRINTED = frozenset({"alertname", "severity", "fabric", "job"})
"""Labels that each alert has, or that say nothing here."""


class Notice(NamedTuple):
    """An alert that began or ended, as a receiver got it.

    Attributes:
        receiver: Name of the receiver.
        status: `firing` or `resolved`.
        labels: All labels of the alert.
        description: Its annotation.
    """

    receiver: str
    status: str
    labels: Mapping[str, str]
    description: str

    def line(self) -> str:
        """Return the notice as one line, with labels as in Prometheus."""
        shown = ",".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in sorted(self.labels.items())
            if value and name not in UNPRINTED
        )
        description = " ".join(self.description.split())
        return f"{self.receiver:6} {self.status:8} {self.labels['alertname']}{{{shown}}} {description}"


class Receiver(Application):
    """Receives the messages of all receivers; each alert that begins or ends is reported once for each receiver."""

    max_body = MAX_MESSAGE

    def __init__(self, report: Callable[[Notice], None]) -> None:
        """Args: report: Called with each notice."""
        self._report = report
        self._status: dict[tuple[str, str], str] = {}

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        """Report what is new in a message of Alertmanager's webhook (version 4)."""
        try:
            content = json.loads(request.body)
            receiver = str(content["receiver"])
            notices = [
                (one["fingerprint"], Notice(receiver, one["status"], one["labels"], one["annotations"]["description"]))
                for one in content["alerts"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            return text(400, f"not a message of Alertmanager: {error}\n")
        for fingerprint, notice in notices:
            if self._status.get((receiver, fingerprint), "resolved") != notice.status:
                self._status[receiver, fingerprint] = notice.status
                self._report(notice)
        return text(200, "")
