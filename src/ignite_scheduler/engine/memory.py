"""How much memory a rank fills, and the watch over what its device has.

What counts are bytes in use beyond those of the idle process: interpreter, libraries, process group and data set,
before the first layer is made. On a CUDA device it is what the allocator handed out; the runtime's own share of the
card is no tensor's.

A CPU has no such allocator, and the C library keeps freed memory (see :mod:`ignite_scheduler.engine.allocation`) and
leaves gaps between blocks: glibc before 2.38 was seen to hold 2 to 40 % more than was in use, differently from run to
run. So one step of each attempt is run with nothing kept, and its peak is the kernel's high-water mark of the process,
which misses nothing. That step is half as slow again as others, so it is the first, which is slow anyway; what the
optimizer makes at its end is held in its place meanwhile. Pages of files, such as the code of libraries, are left out:
the kernel can drop them, and all processes share them. The most that was ever resident is told beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from ignite_scheduler.engine.allocation import give_back_freed_memory, keep_freed_memory
from ignite_scheduler.engine.specification import RankDevice
from ignite_scheduler.errors import ExternalError
from ignite_scheduler.units import format_memory

_PROCESS: Final = Path("/proc/self")
_FORGET_PEAK: Final = "5"
"""What to write to ``clear_refs`` to set the high-water mark back to what is resident now."""


class DeviceMemoryError(ExternalError):
    """A rank filled more than its device has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes of one rank: of the idle process, and with those the most in use, and the most that was ever resident.

    None where the platform does not tell, or where no step was measured.
    """

    idle: int | None
    peak: int | None
    resident: int | None


class MemoryMeter:
    """Measures what a process holds from its making on."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        self._peak: int | None = None
        self._resident = 0
        if self._cuda:
            self._idle: int | None = torch.cuda.memory_allocated(device)
            return
        self._idle = own_bytes()
        forget_peak()

    @property
    def held(self) -> int | None:
        """Bytes beyond the idle process now; on a CPU with what the C library keeps of freed ones."""
        now = torch.cuda.memory_allocated(self._device) if self._cuda else own_bytes()
        return None if now is None or self._idle is None else now - self._idle

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Run a whole step in this block: its peak is taken, and freed memory is kept from then on.

        On a CPU it counts what is in use only if nothing has been kept since before the first tensor
        (:func:`~ignite_scheduler.engine.allocation.return_freed_memory`).
        """
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
            yield
            self._peak = torch.cuda.max_memory_allocated(self._device)
            self._resident = torch.cuda.max_memory_reserved(self._device)
            return
        self._look()
        exact = forget_peak()
        yield
        self._peak = peak_bytes() if exact else None
        keep_freed_memory()

    def _look(self) -> None:
        """Take note of the most that was resident so far."""
        if not self._cuda:
            self._resident = max(self._resident, peak_bytes() or 0)

    @property
    def use(self) -> MemoryUse:
        """What an idle rank holds, and what this one has held at most."""
        self._look()
        return MemoryUse(idle=self._idle, peak=self._peak, resident=self._resident or None)


class MemoryWatch:
    """Compares what a rank holds beyond the idle process with what its device has, where the platform tells."""

    def __init__(self, device: RankDevice, meter: MemoryMeter) -> None:
        self._device, self._meter = device, meter

    def check(self, stage_index: int) -> None:
        """Raise DeviceMemoryError if the rank holds more than its device has, freed memory given back first."""
        limit = None if self._device.held else self._device.memory
        if limit is None or (self._meter.held or 0) <= limit:
            return
        give_back_freed_memory()
        held = self._meter.held or 0
        if held > limit:
            raise DeviceMemoryError(
                f"stage {stage_index} holds {format_memory(held)} on {self._device.id!r}, which has "
                f"{format_memory(limit)}"
            )


def own_bytes() -> int | None:
    """Resident memory of this process without pages of files; None where /proc does not tell."""
    try:
        _, resident, of_files = map(int, (_PROCESS / "statm").read_text().split()[:3])
    except (OSError, ValueError):
        return None
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int | None:
    """Most resident memory since :func:`forget_peak`, less the pages of files that are there now."""
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    kib = {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.strip()}
    if "VmHWM" not in kib or "RssFile" not in kib:
        return None
    return (int(kib["VmHWM"]) - int(kib["RssFile"]) - int(kib.get("RssShmem", 0))) * 1024


def forget_peak() -> bool:
    """Set the kernel's high-water mark of this process back; False where it keeps none that can be set back."""
    try:
        (_PROCESS / "clear_refs").write_text(_FORGET_PEAK)
    except OSError:
        return False
    return True
