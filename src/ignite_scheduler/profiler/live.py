"""How many bytes of tensors are alive while work is done, counted as they come and go: also of tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Result = TypeVar("Result")


class LiveBytes(TorchDispatchMode):
    """A context that follows every block of memory which operations within it make, until nobody holds it.

    Unlike a process's high-water mark it sees no buffers inside of kernels; on fake tensors it sees what it would on
    real ones.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._most = 0

    def __torch_dispatch__(
        self, operation: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive.setdefault(reference.cdata, (reference, storage.nbytes()))
        self._most = max(self._most, self.held())
        return result

    def held(self) -> int:
        """Bytes that are alive now."""
        self._alive = {
            key: (reference, num_bytes)
            for key, (reference, num_bytes) in self._alive.items()
            if not reference.expired()  # type: ignore[no-untyped-call]
        }
        return sum(num_bytes for _, num_bytes in self._alive.values())

    def rise(self, work: Callable[[], Result]) -> tuple[Result, int]:
        """The work's result, and the most bytes that were alive in it beyond those alive before."""
        before = self._most = self.held()
        result = work()
        return result, self._most - before
