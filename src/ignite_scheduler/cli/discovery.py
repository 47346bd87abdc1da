"""What this machine really has: processor, cores, memory, CUDA devices."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCard:
    """A CUDA device: bytes it has and bytes that others hold now."""

    name: str
    uuid: str
    memory: int
    used_by_others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine as this process may use it: cores and bytes are net of affinity and control groups."""

    host: str
    processor: str
    cores: float
    memory: int | None
    cards: tuple[CudaCard, ...]


def this_machine() -> Machine:
    """What is really here. CUDA devices are listed only if PyTorch is installed."""
    return Machine(
        host=socket.gethostname().split(".")[0] or "localhost",
        processor=processor_name(),
        cores=usable_cores(),
        memory=usable_memory(),
        cards=tuple(cuda_cards()),
    )


def processor_name() -> str:
    """The processor's name as the system gives it."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> float:
    """Cores that this process may use: affinity, bounded by a cgroup quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota = cpu_quota()
    return cores if quota is None else min(cores, quota)


def cpu_quota() -> float | None:
    """Cores that the control group allows; None = no limit, or none that can be read."""
    for line in _lines(_CGROUP / "cpu.max"):  # version 2
        quota, period = line.split()
        return None if quota == "max" else float(quota) / float(period)
    quotas = _lines(_CGROUP / "cpu" / "cpu.cfs_quota_us")  # version 1
    periods = _lines(_CGROUP / "cpu" / "cpu.cfs_period_us")
    if quotas and periods and float(quotas[0]) > 0:
        return float(quotas[0]) / float(periods[0])
    return None


def usable_memory() -> int | None:
    """Bytes of memory, bounded by a control group; None where the system does not tell."""
    found = [limit for limit in (_system_memory(), *_memory_limits()) if limit is not None]
    return min(found, default=None)


def _system_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _memory_limits() -> Iterable[int]:
    for path in (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes"):
        for line in _lines(path):
            if line.isdigit():
                yield int(line)


def cgroup_version() -> str:
    """Which control groups there are and whether we may make some: they can bound emulated devices."""
    if (_CGROUP / "cgroup.controllers").exists():
        name, place = "version 2", _CGROUP
    elif (_CGROUP / "cpu").is_dir():
        name, place = "version 1", _CGROUP / "cpu"
    else:
        return "none"
    return f"{name}, {'writable' if os.access(place, os.W_OK) else 'read-only'}"


def cuda_cards() -> Iterable[CudaCard]:
    """CUDA devices that PyTorch sees; none without PyTorch."""
    if find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        yield CudaCard(
            name=properties.name,
            uuid=f"GPU-{getattr(properties, 'uuid', index)}",
            memory=total,
            used_by_others=total - free,
        )


def catalogue_kind(name: str) -> str:
    """The catalogue's name for a card, or the card's own name without maker and spaces.

    >>> catalogue_kind("NVIDIA H200"), catalogue_kind("Tesla V100-SXM2-32GB")
    ('H200', 'V100-SXM2-32GB')
    """
    return re.sub(r"^(NVIDIA|Tesla|GeForce)\s+", "", re.sub(r"^NVIDIA\s+", "", name)).replace(" ", "-")


def cluster_document(machine: Machine) -> dict[str, Any]:
    """A ``cluster.yaml`` of this machine: one device a core, and its CUDA devices."""
    from ignite_scheduler.formats.catalogue import CATALOGUE

    cores = max(1, int(machine.cores))
    core: dict[str, Any] = {"kind": "cpu", "count": cores, "speed": 1}
    core["memory"] = _mebibytes((machine.memory or 2**31) // cores)
    devices: list[dict[str, Any]] = [core]
    for card in machine.cards:
        entry: dict[str, Any] = {"kind": catalogue_kind(card.name), "id": card.uuid, "memory": _mebibytes(card.memory)}
        if card.used_by_others >= 2**20:
            entry["used_by_others"] = _mebibytes(card.used_by_others)
        if entry["kind"] not in CATALOGUE:
            entry["dtypes"] = ["fp32", "fp16"]
        devices.append(entry)
    return {"version": 1, "name": machine.host, "nodes": [{"name": machine.host, "devices": devices}]}


def _mebibytes(value: int) -> str:
    return f"{value // 2**20}MiB"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
