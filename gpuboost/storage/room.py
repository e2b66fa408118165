"""How much memory is free: of the machine, and of the control group that the process may be held to."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["free_memory"]

UNKNOWN = 4 << 30  # bytes, where the system does not say


def free_memory() -> int:
    """Bytes that this process can still take, what the system would give up for it included."""
    return max(0, min([_free_of_machine(), *_free_of_groups()]))


def _free_of_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError, AttributeError):
        return UNKNOWN


def _free_of_groups() -> Iterator[int]:
    """Of every control group with a limit, of version 1 or 2, from that of the process upwards."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names, cached = Path("/sys/fs/cgroup"), ("memory.max", "memory.current"), "inactive_file"
        elif "memory" in controllers.split(","):
            root, names = Path("/sys/fs/cgroup/memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
            cached = "total_inactive_file"
        else:
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(root):
                break
            try:
                limit, used = ((group / name).read_text().strip() for name in names)
                stat = dict(text.split() for text in (group / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):
                continue
            if limit != "max":
                yield int(limit) - int(used) + int(stat.get(cached, 0))
