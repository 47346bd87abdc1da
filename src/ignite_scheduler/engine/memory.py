"""How much memory a rank fills, and the watch over what its device has.

What counts are pages that the process itself wrote to (anonymous and shared memory), beyond those of the idle process:
interpreter, libraries, process group and data set, before the first layer is made. Pages of files, such as the code
of libraries, are left out: the kernel can drop them, and all processes share them. On a CUDA device it is what the
allocator handed out; the runtime's own share of the card is no tensor's.

The peak of a CPU rank is the kernel's own high-water mark, which misses nothing between two looks. It counts pages of
files too, so what those have grown by since is taken off at each look; they grow in the first step only, as code is
touched for the first time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

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
    """Bytes of one rank: of the idle process, and the most so far, the idle ones included.

    None where the platform does not tell.
    """

    idle: int | None
    peak: int | None


class MemoryMeter:
    """Measures what a process holds from its making on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._peak = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._idle: int | None = torch.cuda.memory_allocated(device)
            return
        self._idle = own_bytes()
        self._exact = forget_peak()

    @property
    def held(self) -> int | None:
        """Bytes beyond the idle process now."""
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device) - (self._idle or 0)
        now = own_bytes()
        return None if now is None or self._idle is None else now - self._idle

    def look(self) -> None:
        """Take note of the peak so far; between two looks nothing is lost where the kernel keeps its mark."""
        if self._device.type != "cuda":
            found = peak_bytes() if self._exact else own_bytes()
            self._peak = max(self._peak, found or 0)

    @property
    def use(self) -> MemoryUse:
        """What an idle rank holds and what this one has held at most."""
        if self._idle is None:
            return MemoryUse(idle=None, peak=None)
        self.look()
        top = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else self._peak
        return MemoryUse(idle=self._idle, peak=max(top, self._idle))


class MemoryWatch:
    """Compares what a rank holds beyond the idle process with what its device has, where the platform tells."""

    def __init__(self, device: RankDevice, meter: MemoryMeter) -> None:
        self._device, self._meter = device, meter

    def check(self, stage_index: int) -> None:
        """Raise DeviceMemoryError if the rank holds more than its device has."""
        limit = None if self._device.held else self._device.memory
        held = None if limit is None else self._meter.held
        if limit is None or held is None or held <= limit:
            return
        raise DeviceMemoryError(
            f"stage {stage_index} holds {format_memory(held)} on {self._device.id!r}, which has {format_memory(limit)}"
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
