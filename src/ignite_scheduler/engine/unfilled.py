"""Models whose weights are filled only where they are needed.

Every rank builds the whole model, since the weights of a layer depend on all random numbers drawn before it; but it
keeps only its own layers. So that it never holds more than those, fresh tensors are left unfilled while the model is
built (memory that nobody wrote to takes no room) and what would have filled them is written down: the operation, and
the state of the generator before it. Random numbers are drawn into a small scratch block all the same, so that the
generator moves on as it would. Then the tensors that are kept are filled, by the very operations, in their order.

Whatever else reads a tensor that is not filled yet fills it first; so a builder sees nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_LEAST: Final = 1 << 14
"""Elements from which a tensor is worth waiting with."""
_CHUNK: Final = 1 << 18
"""Elements of the scratch block, a multiple of 16: torch draws normal numbers in groups of 16."""
_CHUNKED: Final = ("normal_", "uniform_")
"""Operations that draw element after element, so that parts of a tensor draw what the whole would."""

_READERS: Final = frozenset(
    {Tensor.numpy, Tensor.__array__, Tensor.tolist, Tensor.data_ptr, Tensor.untyped_storage, Tensor.__dlpack__}
)
"""Ways to a tensor's bytes that no dispatcher sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fill:
    """One operation that was put off; ``state`` is the generator's before it, None where it draws nothing."""

    function: Any
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    state: Tensor | None


class Unfilled:
    """The tensors that wait to be filled. They hold their storages, so no address is used twice meanwhile."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[_Fill]] = {}
        self._scratch: dict[torch.dtype, Tensor] = {}

    def fill(self, tensors: Iterable[Tensor]) -> None:
        """Fill these tensors as they would have been when the model was built; others stay as they are."""
        for tensor in tensors:
            fills = self._waiting.pop(_address(tensor), None) if self._waiting else None
            if fills:
                before = torch.get_rng_state()
                with torch.no_grad():
                    for fill in fills:
                        if fill.state is not None:
                            torch.set_rng_state(fill.state)
                        fill.function(*fill.args, **fill.options)
                torch.set_rng_state(before)

    def fill_all_but(self, unwanted: Iterable[Tensor], *, kept: Iterable[Tensor]) -> None:
        """Fill all tensors but the ``unwanted`` ones that are not among the ``kept``; call it when all is built.

        Tensors that belong to no layer's state, such as plain attributes of a module, are so filled too.
        """
        wanted = {_address(tensor) for tensor in kept}
        for tensor in unwanted:
            if _address(tensor) not in wanted:
                self._waiting.pop(_address(tensor), None)
        self.fill([fills[0].args[0] for fills in self._waiting.values()])
        self._scratch.clear()

    def put_off(self, function: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Tensor:
        """Write down an operation in place, and draw its random numbers; its tensor."""
        tensor: Tensor = args[0]
        state = None
        if torch.Tag.nondeterministic_seeded in function.tags:
            state = torch.get_rng_state()
            self._draw(function, tensor, args[1:], options)
        self._waiting.setdefault(_address(tensor), []).append(
            _Fill(function=function, args=args, options=options, state=state)
        )
        return tensor

    def _draw(self, function: Any, tensor: Tensor, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Move the generator on as if the operation had filled ``tensor``."""
        chunked = function._schema.name.rpartition("::")[2] in _CHUNKED and tensor.is_contiguous()
        if not chunked or tensor.dtype not in {torch.float32, torch.float64}:
            function(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype), *args, **options)
            return
        if tensor.dtype not in self._scratch:  # one for all: freed, its pages would become the next tensor's
            self._scratch[tensor.dtype] = torch.empty(2 * _CHUNK, dtype=tensor.dtype)
        count = tensor.numel()
        while count > 0:  # the last part is never below 16 elements, unless the whole tensor is
            part = count if count < 2 * _CHUNK else _CHUNK
            function(self._scratch[tensor.dtype][:part], *args, **options)
            count -= part

    def can_wait(self, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Whether the operation writes to its first argument alone, and depends on no other tensor."""
        if not args or not isinstance(args[0], Tensor) or args[0].device.type != "cpu":
            return False
        in_place = function._schema.name.endswith("_") and function._schema.is_mutable and not function.is_view
        others = tree_leaves((args[1:], options))
        if not in_place or any(isinstance(each, Tensor | torch.Generator) for each in others):
            return False
        return args[0].numel() >= _LEAST or _address(args[0]) in self._waiting


def _address(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


class _Operations(TorchDispatchMode):
    def __init__(self, unfilled: Unfilled) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._unfilled = unfilled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        with torch._C.DisableTorchFunction():  # our own look at storages is not the builder's
            if self._unfilled.can_wait(func, args, options):
                return self._unfilled.put_off(func, args, options)
            if not func.is_view:
                self._unfilled.fill(each for each in tree_leaves((args, options)) if isinstance(each, Tensor))
        return func(*args, **options)


class _Reads(TorchFunctionMode):
    def __init__(self, unfilled: Unfilled) -> None:
        self._unfilled = unfilled

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READERS and isinstance(args[0], Tensor):
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                self._unfilled.fill([args[0]])
        return func(*args, **(kwargs or {}))


@contextmanager
def unfilled_weights() -> Iterator[Unfilled]:
    """Within this block large tensors on the CPU are made but not filled; fill afterwards those that are kept."""
    unfilled = Unfilled()
    with _Reads(unfilled), _Operations(unfilled):
        yield unfilled
