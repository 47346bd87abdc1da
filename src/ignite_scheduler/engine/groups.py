"""Control groups: the kernel holds a rank to a share of a core and to so much memory, where this user may ask it to.

This is the other way to play a slow device. Pacing waits inside the rank and leaves single operations at full speed;
a group takes the core away for part of each 10 ms, from all threads of the rank alike. Longer periods would give
steadier means, but stalls as long as whole actions. Version 1 (a tree for each controller) and version 2 (one tree) are
both known.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_PERIOD: Final = 10_000  # microseconds
_LEAST_QUOTA: Final = 1_000
"""Microseconds; the kernel refuses less."""
_REMOVAL_PATIENCE: Final = 1.0
"""Seconds; the kernel lets go of a dead process's group a moment after the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """Folders of one group: one in each controller's tree (version 1), or one in all (version 2)."""

    folders: tuple[Path, ...]

    def add(self, process_id: int) -> None:
        """Put a process under the group's limits."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(process_id))

    def killed_for_memory(self) -> bool:
        """Whether the kernel has killed a process of the group because it took too much."""
        for folder in self.folders:
            for file in ("memory.oom_control", "memory.events"):
                with suppress(OSError):
                    counts = dict(line.split() for line in (folder / file).read_text().splitlines())
                    if int(counts.get("oom_kill", 0)) > 0:
                        return True
        return False

    def remove(self) -> None:
        """Take the group away; its processes must have ended."""
        until = time.monotonic() + _REMOVAL_PATIENCE
        for folder in self.folders:
            while folder.exists():
                with suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > until:
                    break
                time.sleep(0.01)


def open_group(
    name: str, *, speed: float | None, memory: float | None, root: Path = _ROOT, own: Path = _OWN
) -> ControlGroup | None:
    """A group below this process's own, with these limits; None where there is no right to make one.

    Parameters
    ----------
    speed
        Cores, in (0, 1]; None = not limited.
    memory
        Bytes; None = not limited.
    """
    quota = None if speed is None else max(_LEAST_QUOTA, round(speed * _PERIOD))
    made: list[Path] = []
    try:
        paths = dict(_paths(own))
        if (root / "cgroup.controllers").exists():
            folder = root / paths[""] / name
            folder.mkdir()
            made.append(folder)
            _limit(folder, "cpu.max", None if quota is None else f"{quota} {_PERIOD}")
            _limit(folder, "memory.max", None if memory is None else str(int(memory)))
        else:
            wanted = (["cpu"] if quota is not None else []) + (["memory"] if memory is not None else [])
            for controller in wanted:
                folder = root / controller / paths[controller] / name
                folder.mkdir()
                made.append(folder)
            for folder in made:
                if quota is not None and (folder / "cpu.cfs_quota_us").exists():
                    _limit(folder, "cpu.cfs_period_us", str(_PERIOD))
                    _limit(folder, "cpu.cfs_quota_us", str(quota))
                elif memory is not None:
                    _limit(folder, "memory.limit_in_bytes", str(int(memory)))
    except (OSError, KeyError):
        ControlGroup(folders=tuple(made)).remove()
        return None
    return ControlGroup(folders=tuple(made))


def _paths(own: Path) -> list[tuple[str, str]]:
    """(controller, this process's group) pairs; the controller of version 2 has no name."""
    lines = (line.split(":", 2) for line in own.read_text().splitlines())
    return [(name, path.lstrip("/")) for _, names, path in lines for name in names.split(",")]


def _limit(folder: Path, file: str, value: str | None) -> None:
    """Write a limit; a file that is missing means that the controller is not at our disposal."""
    if value is None:
        return
    with (folder / file).open("r+") as limits:
        limits.write(value)
