"""Check of the only kind of CLI command that is sent to a switch: a plain `show …`."""

import re

from exporter.switch_api.text_values import excerpt

# No control characters, quotes, pipes or separators: what is sent can only be the one command that was checked.
_SHOW = re.compile(r"show [A-Za-z0-9 _./:,-]{1,200}")


def check_show_command(command: str) -> None:
    """Check that a command is read-only.

    Raises:
        ValueError: it is not a plain `show` command.
    """
    if not _SHOW.fullmatch(command):
        raise ValueError(f"{excerpt(command)} is not sent: only plain commands that begin with 'show ' are")
