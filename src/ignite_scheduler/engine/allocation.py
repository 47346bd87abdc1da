"""Keeps the memory that tensors have left, where the C library can be asked to.

A step frees its gradients and takes as much again in the next one. By default glibc gives such memory back to the
kernel each time and gets it again page by page, zeroed: for 17 MB of gradients on a virtual machine that was 4 ms to
free and 1 to 2 ms to touch again, of a step of 90 ms, and it came and went from step to step.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of ``mallopt``, from glibc's malloc.h."""
_KEPT_BYTES: Final = 1 << 30
_OLD_LIMIT: Final = 1 << 25
"""The largest threshold for mapped blocks that glibc before 2.35 takes."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory for its next tensors; False where the C library has no such option."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return False
    large_blocks = mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_M_MMAP_THRESHOLD, _OLD_LIMIT)
    return bool(large_blocks and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
