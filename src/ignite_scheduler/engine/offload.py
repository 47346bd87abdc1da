"""Activations that wait in host memory between a microbatch's forward and its backward.

What autograd keeps for the backward leaves the device as soon as it is kept, and comes back when it is needed. On a
device that is played its memory and the host's are one and the same; there the host's is memory shared with nobody,
which is not counted as the device's (see :mod:`ignite_scheduler.engine.memory`), and the time of the link is waited
for (see :meth:`ignite_scheduler.engine.devices.ComputeDevice.takes`).

On a CUDA device copies are queued behind the computing that makes what they copy: they do not yet run beside it.
"""

from __future__ import annotations

import mmap
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from ignite_scheduler.engine.devices import ComputeDevice

_LEAST_BYTES: Final = 4096
"""Smaller tensors stay: a page of host memory is as large."""


class HostMemory:
    """Where the activations of one stage wait.

    Parameters
    ----------
    layers
        The stage's; their weights and buffers stay on the device.
    device
        Whose link to the host it is.
    bandwidth
        Of that link where it is played, in bytes per second; None = it takes the time that it takes.
    """

    def __init__(self, layers: nn.Module, device: ComputeDevice, bandwidth: float | None) -> None:
        self._staying = {_storage(tensor) for tensor in (*layers.parameters(), *layers.buffers())}
        self._device, self._bandwidth = device, bandwidth
        self._free: dict[int, list[mmap.mmap]] = defaultdict(list)
        self._moved = 0
        self._sent: dict[tuple[Any, ...], tuple[StorageWeakRef, weakref.ref[_Away]]] = {}

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Within this block, a forward, all that is kept for the backward goes to the host."""
        with self.link(), saved_tensors_hooks(self._send, self._fetch):
            yield
        self._sent.clear()

    @contextmanager
    def link(self) -> Iterator[None]:
        """This block, one action of the device, takes no less than the transfers to or from the host in it."""
        self._moved = 0
        yield
        if self._bandwidth is not None:
            self._device.takes(self._moved / self._bandwidth)

    def _send(self, tensor: Tensor) -> Any:
        if tensor.nbytes < _LEAST_BYTES or _storage(tensor) in self._staying or tensor.is_sparse:
            return tensor
        # A tensor that two operations keep goes once. The weak reference keeps the storage's address from being used
        # again; it tells nothing of a tensor that is gone.
        key = _storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version
        if key in self._sent:
            known = self._sent[key][1]()
            if known is not None:
                return known
        self._moved += tensor.nbytes
        with self._device.aside():
            away = _Pinned(tensor) if tensor.is_cuda else _Block(self._free[tensor.nbytes], tensor)
        alive = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._sent[key] = alive, weakref.ref(away)
        return away

    def _fetch(self, kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        assert isinstance(kept, _Away)
        with self._device.aside():
            tensor = kept.tensor()
        if not kept.fetched:
            kept.fetched = True
            self._moved += tensor.nbytes
        return tensor


class _Away(ABC):
    """A tensor that waits in the host's memory; ``fetched``: whether it came back."""

    fetched = False

    @abstractmethod
    def tensor(self) -> Tensor:
        """The tensor, on its device."""


class _Pinned(_Away):
    """A tensor of a CUDA device, in memory of the host that the device reads."""

    def __init__(self, tensor: Tensor) -> None:
        self._away, self._device = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True), tensor.device
        self._away.copy_(tensor, non_blocking=True)

    def tensor(self) -> Tensor:
        return self._away.to(self._device, non_blocking=True)


class _Block(_Away):
    """A tensor of a played device, in shared memory; that goes back to ``free`` with it, and is used again."""

    def __init__(self, free: list[mmap.mmap], tensor: Tensor) -> None:
        self._free = free
        self._block = free.pop() if free else mmap.mmap(-1, tensor.nbytes)
        self._dtype, self._shape = tensor.dtype, tensor.shape
        self._view().copy_(tensor.detach())

    def _view(self) -> Tensor:
        return torch.frombuffer(self._block, dtype=self._dtype).view(self._shape)

    def tensor(self) -> Tensor:
        return self._view().clone()

    def __del__(self) -> None:
        self._free.append(self._block)


def _storage(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address
