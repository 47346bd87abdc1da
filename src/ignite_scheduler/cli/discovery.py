"""What this machine really has: processor, cores, memory, GPUs."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignite_scheduler.cli.cards import CudaCard, cuda_cards

_UNLIMITED: Final = 2**60
"""A control group without a limit of its own says some number above this (version 1)."""
_DEFAULT_MEMORY: Final = 2**31
"""Bytes of a machine that does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Where the system tells about itself; tests put their own files there."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    board: Path = Path("/proc/device-tree/model")

    def groups(self, controller: str) -> Iterator[Path]:
        """Folders of the control groups that this process is in, its own first, then those around it."""
        version2 = (self.cgroup / "cgroup.controllers").exists()
        root = self.cgroup if version2 else self.cgroup / controller
        own = "/"
        for line in _lines(self.proc / "self" / "cgroup"):
            _, names, path = line.split(":", 2)
            if names == "" if version2 else controller in names.split(","):
                own = path
        folder = root / own.strip("/")
        for candidate in (folder, *folder.parents):
            if candidate.is_dir():
                yield candidate
            if candidate == root:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine as this process may use it: cores and bytes are net of affinity and control groups.

    ``memory`` is what there is at most, ``used_by_others`` what of it is taken now; ``memory_limit`` the control
    group's limit (None = none). ``kind`` is the catalogue's name of the processor, None where it has none.
    """

    host: str
    processor: str
    cores: float
    memory: int | None
    cards: tuple[CudaCard, ...]
    used_by_others: int = 0
    memory_limit: int | None = None
    kind: str | None = None


def this_machine(system: System | None = None) -> Machine:
    """What is really here."""
    system = system or System()
    processor = processor_name(system)
    return Machine(
        host=re.sub(r"[^\w.-]", "-", socket.gethostname().split(".")[0]) or "localhost",
        processor=processor,
        cores=usable_cores(system),
        memory=usable_memory(system),
        used_by_others=used_memory(system),
        memory_limit=memory_limit(system),
        cards=cuda_cards(),
        kind=processor_kind(processor),
    )


def processor_name(system: System | None = None) -> str:
    """The processor's (or the board's) name as the system gives it."""
    system = system or System()
    for line in _lines(system.proc / "cpuinfo"):
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    board = [line.strip("\0 ") for line in _lines(system.board)]
    return (board[0] if board else "") or platform.processor() or platform.machine()


def processor_kind(processor: str) -> str | None:
    """The catalogue's kind of a processor or board, None if it is not there."""
    from ignite_scheduler.formats.catalogue import catalogue

    kinds = {alias: kind.name for kind in catalogue().values() for alias in kind.aliases}
    return next((kind for alias, kind in kinds.items() if processor.startswith(alias)), None)


def usable_cores(system: System | None = None) -> float:
    """Cores that this process may use: affinity, bounded by a control group's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota = cpu_quota(system)
    return cores if quota is None else min(cores, quota)


def cpu_quota(system: System | None = None) -> float | None:
    """Cores that the control groups allow; None = no limit, or none that can be read."""
    quotas = []
    for folder in (system or System()).groups("cpu"):
        for line in _lines(folder / "cpu.max"):  # version 2
            quota, period = line.split()
            if quota != "max":
                quotas.append(float(quota) / float(period))
        limits, periods = _lines(folder / "cpu.cfs_quota_us"), _lines(folder / "cpu.cfs_period_us")
        if limits and periods and float(limits[0]) > 0:
            quotas.append(float(limits[0]) / float(periods[0]))
    return min(quotas, default=None)


def usable_memory(system: System | None = None) -> int | None:
    """Bytes of memory, bounded by the control groups; None where the system does not tell."""
    found = [_meminfo(system, "MemTotal"), memory_limit(system)]
    return min((size for size in found if size is not None), default=None)


def memory_limit(system: System | None = None) -> int | None:
    """Bytes that the control groups allow; None = no limit."""
    limits = [limit for limit, _ in _memory_groups(system) if limit < _UNLIMITED]
    return min(limits, default=None)


def used_memory(system: System | None = None) -> int:
    """Bytes of :func:`usable_memory` that are taken now: the system's own count, or the group's where it is tighter."""
    whole, total = usable_memory(system), _meminfo(system, "MemTotal")
    free = _meminfo(system, "MemAvailable")
    rests = [] if free is None else [free]
    rests += [limit - used for limit, used in _memory_groups(system) if limit < (total or _UNLIMITED)]
    return max(0, whole - max(0, min(rests))) if whole is not None and rests else 0


def _memory_groups(system: System | None) -> Iterator[tuple[int, int]]:
    """(limit, used) of each group; what the kernel would give back at once does not count as used."""
    for folder in (system or System()).groups("memory"):
        for limit_file, used_file, idle in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limits, uses = _lines(folder / limit_file), _lines(folder / used_file)
            if limits and limits[0].isdigit() and uses:
                stat = dict(line.split(maxsplit=1) for line in _lines(folder / "memory.stat"))
                yield int(limits[0]), max(0, int(uses[0]) - int(stat.get(idle, 0)))


def _meminfo(system: System | None, field: str) -> int | None:
    for line in _lines((system or System()).proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def cgroup_version() -> str:
    """Which control groups there are and whether we may make some: they can bound emulated devices."""
    root = System().cgroup
    if (root / "cgroup.controllers").exists():
        name, place = "version 2", root
    elif (root / "cpu").is_dir():
        name, place = "version 1", root / "cpu"
    else:
        return "none"
    return f"{name}, {'writable' if os.access(place, os.W_OK) else 'read-only'}"


def cluster_document(machine: Machine) -> dict[str, Any]:
    """A ``cluster.yaml`` of this machine: one device a core, and its GPUs."""
    from ignite_scheduler.formats.catalogue import catalogue

    cores = max(1, int(machine.cores))
    core: dict[str, Any] = {"kind": "cpu", "count": cores, "speed": 1}
    core |= _memory((machine.memory or _DEFAULT_MEMORY) // cores, machine.used_by_others // cores)
    devices = [core]
    for card in machine.cards:
        entry: dict[str, Any] = {"kind": card.kind, "id": card.uuid} | _memory(card.memory, card.used_by_others)
        if card.kind not in catalogue():
            entry["dtypes"] = list(card.dtypes or ("fp32", "fp16"))
        devices.append(entry)
    return {"version": 1, "name": machine.host, "nodes": [{"name": machine.host, "devices": devices}]}


def _memory(whole: int, used: int) -> dict[str, str]:
    """Memory of a device, and others' part of it unless that is too little to speak of or all that there is."""
    entry = {"memory": _mebibytes(whole)}
    return entry | ({"used_by_others": _mebibytes(used)} if 2**20 <= used <= whole - 2**20 else {})


def _mebibytes(value: int) -> str:
    return f"{value // 2**20}MiB"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
