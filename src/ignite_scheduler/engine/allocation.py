"""Keeps the memory that tensors have left, where the C library can be asked to.

A step frees its gradients and takes as much again in the next one. By default glibc gives such memory back to the
kernel each time and gets it again page by page, zeroed: for 17 MB of gradients on a virtual machine that was 4 ms to
free and 1 to 2 ms to touch again, of a step of 90 ms, and it came and went from step to step.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of ``mallopt``, from glibc's malloc.h."""
_KEPT_BYTES: Final = 1 << 30
_SMALL_BYTES: Final = 1 << 17
"""Blocks below this lie in the heap, where gaps stay; they add up to little."""
_OLD_LIMIT: Final = 1 << 25
"""The largest threshold for mapped blocks that glibc before 2.35 takes."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory for its next tensors; False where the C library has no such option."""
    mallopt = _function("mallopt")
    if mallopt is None:
        return False
    large_blocks = mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_M_MMAP_THRESHOLD, _OLD_LIMIT)
    return bool(large_blocks and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def return_freed_memory() -> bool:
    """Let each freed block of this process go back to the kernel at once; False where that cannot be asked.

    What is resident is then what is in use, if it is called before there are tensors: gaps that they leave in the heap
    would be filled first. It is slow, since tensors get fresh pages each time: good for measuring bytes, not seconds.
    """
    mallopt, trim = _function("mallopt"), _function("malloc_trim")
    if mallopt is None or trim is None or not mallopt(_M_MMAP_THRESHOLD, _SMALL_BYTES):
        return False
    trim(0)
    return True


def give_back_freed_memory() -> None:
    """Give all freed memory back to the kernel once, where the C library can be asked to."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    """One of glibc's functions; None on another system or C library, such as musl."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
