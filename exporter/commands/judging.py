"""Exit statuses of commands that judge: their own faults must not have the status of a finding."""

import sys
import traceback
from collections.abc import Callable

from exporter.config.errors import UserError

OWN_FAULT = 2


def status_of(judge: Callable[[], int]) -> int:
    """Return the status of a command that judges, or OWN_FAULT if it fails itself.

    Raises:
        OSError: Of standard output, see `cli.main`.
    """
    try:
        return judge()
    except UserError as error:
        print(f"fabric-exporter: {error}", file=sys.stderr)  # noqa: T201  # errors go to the terminal
    except OSError:
        raise
    except Exception:  # noqa: BLE001
        traceback.print_exc()
    return OWN_FAULT
