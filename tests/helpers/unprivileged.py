"""Calls without the rights of root, in a process that has all modules, whose files may be root's alone."""

import os
from collections.abc import Callable

NOBODY = 65534


def status_without_rights(call: Callable[[], int]) -> int:
    """Return the exit status of a call in a process that has no rights; its output is that of this process."""
    child = os.fork()
    if not child:
        status = 99
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            status = call()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
