"""The one kind of command that is ever sent to a switch: a plain `show …`."""

import re

from exporter.switch_api.http import excerpt

# No control characters, quotes, pipes or separators: what is sent can only be the one command that was checked.
_SHOW = re.compile(r"show [A-Za-z0-9 _./:,-]{1,200}")


def check_show(command: str) -> None:
    """See that a command only shows.

    Raises:
        ValueError: It may do anything else.
    """
    if not _SHOW.fullmatch(command):
        raise ValueError(f"{excerpt(command)} is not sent: only plain commands that begin with 'show ' are")
