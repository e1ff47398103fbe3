"""Lists of CPUs or nodes as sysfs and procfs print them, such as `0-3,8`."""

MAX_CPUS = 1 << 14
"""CPUs that Linux supports at most, and more."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse a list of CPUs; empty for an empty one.

    Raises:
        ValueError: It is malformed, or names a CPU that no host has.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < MAX_CPUS:
            raise ValueError(f"not a list of CPUs: {text[:40]!r}")
        found.update(range(low, high + 1))
    return frozenset(found)
