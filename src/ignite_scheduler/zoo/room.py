"""Is there room for a model in this machine's memory? Told before the machine runs out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.entries import Entry

_LARGE: Final = 1_000_000_000
"""Parameters from which a model is asked about: what is smaller fits wherever PyTorch does."""
_ELEMENT: Final = 4
"""Bytes of a fresh weight."""
_MEMINFO: Final = Path("/proc/meminfo")


def check_room(entry: Entry, build: Callable[[], Any]) -> None:
    """Refuse a large model of the zoo whose weights alone are more than this machine has memory to give.

    Parameters
    ----------
    build
        Makes the model; it is called on the meta device, where that takes no memory.

    Raises
    ------
    InputError
        The weights do not fit; the message has both figures. Where the system does not tell its memory, nothing is.
    """
    stated = entry.published
    if stated is None or stated.parameters < _LARGE or torch.get_default_device().type == "meta":
        return
    with torch.device("meta"):
        needed = _ELEMENT * sum(parameter.numel() for parameter in build().parameters())
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{entry.name}: its weights alone take {needed / 1e9:.3g}GB, this machine has {available / 1e9:.3g}GB to "
            "give; size it with 'ignite profile … --devices meta', or make it smaller (--args depth=2)"
        )


def available_memory() -> int | None:
    """Bytes that the system can give without swapping; None where it does not say."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None
