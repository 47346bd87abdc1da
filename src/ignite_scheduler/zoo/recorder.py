"""Sees what a model's forward does while it runs: calls of its blocks and the operations between them.

Theory of operation
-------------------
A *block* (see :mod:`ignite_scheduler.zoo.blocks`) is one step, whatever it does inside: it will run as its author
wrote it. Between blocks each operation of the tensor library is a step, seen below autograd and below ``vmap``, so that
masks, positions and residual sums are plain operations on plain tensors. Whatever Python did to choose them (options,
shapes, ``if``) has been decided by then; an ``if`` on the samples' values would have been decided for these samples
only, and is refused with its line.

Nothing of the run is kept but what :mod:`ignite_scheduler.zoo.recording` has nouns for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode

from ignite_scheduler.errors import InputError
from ignite_scheduler.zoo.blocks import Blocks
from ignite_scheduler.zoo.chain import shapes
from ignite_scheduler.zoo.dropout import drawn_by
from ignite_scheduler.zoo.recording import DataDependentError, Literal, Place, Ref, State, Step, Value

_LIBRARY: Final = str(Path(torch.__file__).parent)
_HERE: Final = str(Path(__file__).parent)
_PICKS: Final = (torch.ops.aten.index.Tensor, torch.ops.aten.masked_select.default)
_AUTOCASTS: Final = ("cpu", "cuda")
_MASKS: Final = (torch.bool, torch.uint8)


@dataclass(slots=True)
class _Running:
    """A block whose forward is running."""

    path: str
    step: int
    detailed: bool
    draws: bool = False


@dataclass(slots=True, kw_only=True)
class _Notes:
    """What a recorder has seen, by identity of objects, which are kept so that none is used twice."""

    numbers: dict[int, int] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)
    storages: dict[int, int] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    literals: dict[int, int] = field(default_factory=dict)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation, below autograd."""

    def __init__(self, model: nn.Module, blocks: Blocks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._blocks = blocks
        self._notes = _Notes()
        self._running: _Running | None = None
        self._around: list[tuple[str, int]] = []
        self._serial = 0
        self.silent = False
        self.steps: list[Step] = []
        self.values: list[Value] = []
        self.literals: list[Tensor] = []
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._notes.states[id(tensor)] = path

    # -- tensors --------------------------------------------------------------------------------------------------

    def known(self, tensor: Tensor) -> int | None:
        """The tensor's value number."""
        return self._notes.numbers.get(id(tensor))

    def define(self, tensor: Tensor, *, from_samples: bool) -> int:
        """A number for the tensor; the old one where it has one."""
        number = self.known(tensor)
        if number is None:
            number = len(self.values)
            self._notes.numbers[id(tensor)] = number
            self._notes.kept.append(tensor)
            key = tensor.untyped_storage()._cdata
            storage = self._notes.storages.setdefault(key, len(self._notes.storages))
            size = tensor.numel() * tensor.element_size()
            self.values.append(
                Value(shape=tuple(tensor.shape), num_bytes=size, storage=storage, from_samples=from_samples)
            )
        elif from_samples and not self.values[number].from_samples:
            self.values[number] = replace(self.values[number], from_samples=True)
        return number

    def encode(self, leaf: Any) -> Any:
        """An argument as a step keeps it."""
        if isinstance(leaf, torch.device):
            return Place() if leaf.type == "cpu" else leaf
        if not isinstance(leaf, Tensor):
            _refuse_hidden_tensors(leaf)
            return leaf
        number = self.known(leaf)
        if number is not None:
            return Ref(number)
        path = self._notes.states.get(id(leaf))
        if path is not None:
            return State(path)
        index = self._notes.literals.setdefault(id(leaf), len(self.literals))
        if index == len(self.literals):
            if isinstance(leaf, FakeTensor):
                raise InputError(f"a tensor without values is read at {_users_line()}")
            self._notes.kept.append(leaf)
            self.literals.append(leaf.detach())
        return Literal(index)

    def _sampled(self, flat: Sequence[Any]) -> bool:
        return any(isinstance(leaf, Ref) and self.values[leaf.value].from_samples for leaf in flat)

    # -- operations -----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        unseen = self.silent or (self._running is not None and not self._running.detailed)
        if unseen or func.namespace == "prim":  # prim asks for a device, which is no operation
            return func(*args, **kwargs)
        where = _users_line()
        leaves, form = tree.tree_flatten((args, kwargs))
        flat = tuple(map(self.encode, leaves))
        sampled = self._sampled(flat)
        if self._running is None:
            self._refuse(func, sampled, where)
            self._refuse_unknown_size(func, leaves, flat, where)
        result = func(*args, **kwargs)
        self._add(
            func, flat, form, tree.tree_leaves(result), sampled=sampled, where=where, written=_written(func, args)
        )
        return result

    def _refuse(self, func: Any, sampled: bool, where: str) -> None:
        returns = func._schema.returns
        if sampled and returns and not any("Tensor" in str(result.type) for result in returns):
            raise DataDependentError(
                f"the forward looks at the values of the samples at {where}: what it does then would hold for these "
                "samples only; choose by torch.where, or put this into a module of its own within a block"
            )
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise InputError(
                f"the forward draws random numbers ({func}) between its blocks at {where}: they would depend on how "
                "the batch is cut; use nn.Dropout, or draw them in the data set"
            )

    def _refuse_unknown_size(self, func: Any, leaves: Sequence[Any], flat: Sequence[Any], where: str) -> None:
        """What is sent must have a size that the number of samples tells: so no row is picked by what stands in it."""
        if torch.Tag.dynamic_output_shape not in func.tags:
            return
        picks = func in _PICKS  # by masks; whole numbers pick as many as there are of them
        for leaf, argument in list(zip(leaves, flat, strict=True))[picks:]:
            by_values = isinstance(argument, Ref) and self.values[argument.value].from_samples
            if by_values and not (picks and leaf.dtype not in _MASKS):
                raise DataDependentError(
                    f"the values of the samples decide at {where} how many rows there are ({func}): other layers could "
                    "not know what they will be sent; choose by torch.where, multiply by a mask, or put this into a "
                    "module of its own within a block"
                )

    def _add(
        self,
        target: Any,
        flat: tuple[Any, ...],
        form: Any,
        results: list[Any],
        *,
        sampled: bool,
        where: str,
        written: Sequence[Tensor] = (),
    ) -> None:
        outputs = tuple(self.define(r, from_samples=sampled) if isinstance(r, Tensor) else None for r in results)
        writes = tuple(dict.fromkeys(n for t in written if (n := self.known(t)) is not None))
        changes = tuple(path for t in written if (path := self._notes.states.get(id(t))) is not None)
        if sampled:
            for number in writes:
                self.values[number] = replace(self.values[number], from_samples=True)
        self.steps.append(
            Step(
                target=target,
                flat=flat,
                form=form,
                outputs=outputs,
                around=tuple(self._around),
                grad=torch.is_grad_enabled(),
                where=where,
                inside=None if self._running is None else self._running.step,
                writes=writes,
                changes=changes,
            )
        )

    # -- modules --------------------------------------------------------------------------------------------------

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Within this block calls of the model's modules are noticed."""
        handles = []
        for path, module in self._blocks.blocks.items():
            handles.append(module.register_forward_pre_hook(self._begin_call(path), with_kwargs=True))
            handles.append(module.register_forward_hook(self._end_call(path), with_kwargs=True))
        for path, module in self._blocks.containers.items():
            handles.append(module.register_forward_pre_hook(self._enter(path)))
            handles.append(module.register_forward_hook(self._leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begin_call(self, path: str) -> Callable[..., None]:
        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            if self._running is not None:
                return
            if any(map(torch.is_autocast_enabled, _AUTOCASTS)):
                raise InputError(
                    f"the forward calls {path!r} under autocast at {_users_line()}: it is the job that says in which "
                    "precision the model computes; leave autocast out, or put this into a module of its own"
                )
            leaves, form = tree.tree_flatten((args, kwargs))
            flat = tuple(map(self.encode, leaves))
            self._add(path, flat, form, [], sampled=self._sampled(flat), where=_users_line())
            weighty = any(True for _ in module.parameters())  # frozen ones too: dear to run twice
            self._running = _Running(path, len(self.steps) - 1, detailed=not weighty)

        return begin

    def _end_call(self, path: str) -> Callable[..., None]:
        def end(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            running = self._running
            if running is None or running.path != path:
                return
            step = self.steps[running.step]
            sampled = self._sampled(step.flat)
            results = tree.tree_leaves(result)
            for leaf in results:
                _refuse_hidden_tensors(leaf)
            outputs = tuple(
                self.define(r, from_samples=sampled and not running.detailed) if isinstance(r, Tensor) else None
                for r in results
            )
            self.steps[running.step] = replace(step, outputs=outputs, draws=running.draws)
            self._running = None

        return end

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any) -> None:
            if self._running is None:
                self._serial += 1
                self._around.append((path, self._serial))

        return enter

    def _leave(self, module: nn.Module, args: Any, result: Any) -> None:
        if self._running is None:
            self._around.pop()

    def story(self, source: str, inputs: tuple[Tensor, ...], error: Exception) -> str:
        """What failed, and in which block."""
        told = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        if self._running is None:
            return f"{source}: the forward with an input of {shapes(inputs)} fails: {told}"
        given = tuple(leaf for leaf in self.steps[self._running.step].flat if isinstance(leaf, Ref))
        text = ", ".join(str(self.values[ref.value].shape) for ref in given) or "no tensor"
        return f"{source}: layer {self._running.path!r} with an input of {text} fails: {told}"

    def drop(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record a function that drops elements as one step, or note that the running block calls one."""
        if self._running is not None:
            self._running.draws = True
            return func(*args, **kwargs)
        leaves, form = tree.tree_flatten((args, kwargs))
        flat = tuple(map(self.encode, leaves))
        self.silent = True
        try:
            result = func(*args, **kwargs)
        finally:
            self.silent = False
        self._add(func, flat, form, tree.tree_leaves(result), sampled=self._sampled(flat), where=_users_line())
        return result


class FunctionRecorder(TorchFunctionMode):
    """Sees calls of torch's functions before they fall apart into operations."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if drawn_by(func, args, kwargs):
            return self._recorder.drop(func, args, kwargs)
        return func(*args, **kwargs)


def _written(func: Any, args: Any) -> tuple[Tensor, ...]:
    """Tensors among the arguments that the operation changes in place."""
    found: list[Tensor] = []
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.extend(leaf for leaf in tree.tree_leaves(value) if isinstance(leaf, Tensor))
    return tuple(found)


def _refuse_hidden_tensors(leaf: Any) -> None:
    """Refuse an object that would carry tensors past the boundary between two stages, unseen."""
    held = getattr(leaf, "__dict__", None)
    if not isinstance(held, dict) or isinstance(leaf, nn.Module | type) or callable(leaf):
        return
    if any(isinstance(part, Tensor) for part in tree.tree_leaves(list(held.values()))):
        raise InputError(
            f"a {type(leaf).__name__} with tensors in it passes between blocks at {_users_line()}: only tensors can be "
            "sent from stage to stage (of a cache for generation: set use_cache to False)"
        )


def _users_line() -> str:
    """``file:line`` of the innermost frame that is neither torch's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_LIBRARY, _HERE)) and not file.startswith("<"):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"
