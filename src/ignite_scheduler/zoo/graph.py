"""Any module as a chain of layers, cut along the graph of what its forward does.

Theory of operation
-------------------
The forward is recorded on 2 and on 3 samples (:mod:`~ignite_scheduler.zoo.recorder`), and put as one run that holds
for any number of them (:mod:`~ignite_scheduler.zoo.scaling`). Its *bound* steps stand in one line; each gap between
two of them is a place for a cut, and the values made before it and read behind it are what would be sent
(:mod:`~ignite_scheduler.zoo.flow`).

    embed ─┬─ block0 ─┬─ block1 ─ … ─ norm ─ head          one cut between each two blocks with weights, where the
           └──────────┴── mask made anew by each           fewest bytes cross

Every block with weights begins a layer; what stands between two of them goes where the cut is cheapest. A stage of a
network in stages is cut between its blocks only where no more tensors cross than at its ends, so that a layer's inner
branches stay together. No cut separates changes in place of one memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from ignite_scheduler.zoo.blocks import Blocks, find_blocks
from ignite_scheduler.zoo.chain import Layers, make_ready
from ignite_scheduler.zoo.flow import Flow
from ignite_scheduler.zoo.recording import Literal, Recording, Ref, State, Step
from ignite_scheduler.zoo.rehearsal import record
from ignite_scheduler.zoo.scaling import Scaled, scaled
from ignite_scheduler.zoo.segment import Part, Segment

SAMPLES: Final = 3
"""How many rows of input :func:`graph_chain` takes: runs are recorded on 2 and on all 3."""
_SLACK: Final = 1.05
"""A cut may cross so many times the fewest bytes, if it leaves more with the block before it."""


def graph_chain(
    model: nn.Module, inputs: tuple[Tensor, ...], source: str, dtype: torch.dtype = torch.float32
) -> Layers:
    """The model as a chain of layers named by the paths of their blocks.

    Parameters
    ----------
    model
        Its modules and parameters become those of the layers; its dropout is keyed, in place.
    inputs
        What its forward takes, by position: :data:`SAMPLES` rows each.
    source
        Where it came from, for messages.
    dtype
        Type of the elements that it will compute with; its weights may still be of another.

    Raises
    ------
    InputError
        Its forward fails, looks at the samples' values, or computes a sample otherwise when others stand beside it.
    """
    make_ready(model, source)
    _keep_no_cache(model)
    blocks = find_blocks(model)
    given = tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)
    recording = _recorded(model, blocks, given, source, dtype)
    flow = Flow(model, recording)
    cuts = _cuts(flow, model, blocks)
    return Layers(_layers(flow, model, blocks, recording, cuts))


def _keep_no_cache(model: nn.Module) -> None:
    """Models that can generate text keep keys and values for it unless told not to; training needs none."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False  # type: ignore[union-attr]


_known: dict[str, Recording] = {}
"""Recordings of this process by what they are of: one model is built to be checked, and again to be run."""
_MOST_KNOWN: Final = 8


def _recorded(
    model: nn.Module, blocks: Blocks, inputs: tuple[Tensor, ...], source: str, dtype: torch.dtype
) -> Recording:
    key = _key(model, inputs, dtype)
    if key not in _known:
        training = model.training
        model.train()
        try:
            with torch.device("cpu"):
                first, second = record(model, blocks, [tuple(t[:-1] for t in inputs), inputs], source, dtype)
        finally:
            model.train(training)
        recording = scaled(first, second, source)
        if not recording.is_plain:
            return recording
        while len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[key] = recording
    return _known[key]


def _key(model: nn.Module, inputs: tuple[Tensor, ...], dtype: torch.dtype) -> str:
    """Text that is the same for models of one structure and one configuration, given inputs of one shape."""
    owners: dict[int, str] = {}
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    state = [(p, owners.setdefault(id(t), p), tuple(t.shape), t.dtype, t.requires_grad) for p, t in tensors]
    options = {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str)
    }
    config = getattr(model, "config", None)
    return repr((model, config, state, options, [(t.shape, t.dtype) for t in inputs], dtype))


# -- where to cut -----------------------------------------------------------------------------------------------------


def _cuts(flow: Flow, model: nn.Module, blocks: Blocks) -> list[int]:
    """Places behind which a layer ends, in order; that of the last layer is left out."""
    steps = [flow.steps[index] for index in flow.bound]
    seeds = [place for place, step in enumerate(steps) if step.is_call and _has_weights(blocks.blocks[step.target])]
    barred = {
        place for first, last in (*flow.unbroken(), *_shared_state(steps, blocks)) for place in range(first, last)
    }
    cuts = []
    for before, after in pairwise(seeds):
        crossing = {p: _num_bytes(flow, p) for p in range(before, after) if p not in barred}
        if crossing:
            least = min(crossing.values())
            cuts.append(max(place for place, size in crossing.items() if size <= _SLACK * least))
    inner = set(_inner(flow, steps, blocks, cuts))
    return [place for place in cuts if place not in inner]


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _num_bytes(flow: Flow, place: int) -> int:
    return sum(flow.values[number].num_bytes for number in flow.live(place))


def _shared_state(steps: Sequence[Step], blocks: Blocks) -> Iterator[tuple[int, int]]:
    """Ranges between calls of one block that keeps a state, such as running statistics: two stages can't share it."""
    places: dict[str, list[int]] = {}
    for place, step in enumerate(steps):
        if step.is_call:
            places.setdefault(step.target, []).append(place)
    for path, called in places.items():
        module = blocks.blocks[path]
        state = module.state_dict().keys() - dict(module.named_parameters(remove_duplicate=False)).keys()
        if len(called) > 1 and state:
            yield called[0], called[-1]


class _Region(NamedTuple):
    """Places of the steps of one call of a container."""

    first: int
    last: int


def _regions(steps: Sequence[Step], blocks: Blocks) -> dict[tuple[str, int], _Region]:
    regions: dict[tuple[str, int], _Region] = {}
    for place, step in enumerate(steps):
        for call in step.around:
            if call[0] in blocks.items:
                regions[call] = _Region(regions[call].first if call in regions else place, place)
    return regions


def _inner(flow: Flow, steps: Sequence[Step], blocks: Blocks, cuts: Sequence[int]) -> Iterator[int]:
    """Cuts within a stage of the network that more tensors cross than its ends."""
    for region in _regions(steps, blocks).values():
        ends = max(len(flow.live(region.first - 1)), len(flow.live(region.last)))
        for place in cuts:
            if region.first <= place < region.last and len(flow.live(place)) > ends:
                yield place


# -- layers -----------------------------------------------------------------------------------------------------------


def _layers(
    flow: Flow, model: nn.Module, blocks: Blocks, recording: Recording, cuts: Sequence[int]
) -> Iterator[tuple[str, nn.Module]]:
    last = len(flow.bound) - 1
    given = tuple(range(flow.num_inputs))
    states: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    names, calls = Counter[str](), Counter[str]()
    first = 0
    for place in (*cuts, last):
        own = flow.bound[first : place + 1]
        returned = (flow.output,) if place == last else flow.live(place)
        parts = [_part(flow.steps[index], index, calls) for index in _program(flow, own, given, returned)]
        name = _name(parts, model, blocks)
        names[name] += 1
        yield (
            name if names[name] == 1 else f"{name}~{names[name]}",
            _segment(parts, given, returned, recording, blocks, states),
        )
        first, given = place + 1, returned


def _program(flow: Flow, own: Sequence[int], given: tuple[int, ...], returned: tuple[int, ...]) -> list[int]:
    """Indices of the steps that a layer runs: its bound ones, and the free ones that it needs and does not get."""
    program = set(own)
    readers = [(index, flow.steps[index].flat) for index in own]
    readers.append((len(flow.steps), tuple(Ref(number) for number in returned)))
    for before, flat in readers:
        for leaf in flat:
            if isinstance(leaf, Ref) and leaf.value not in given and leaf.value in flow.uses:
                program |= flow.recipe(leaf.value, before)
    return sorted(program)


def _part(step: Step, index: int, calls: Counter[str]) -> Part:
    if not step.is_call:
        return Part(step, f"function{index}")
    calls[step.target] += 1
    return Part(step, "" if calls[step.target] == 1 else f"~{calls[step.target]}")


def _name(parts: Sequence[Part], model: nn.Module, blocks: Blocks) -> str:
    """The path of the layer's block, or of the container that holds its blocks."""
    called = [part.step for part in parts if part.step.is_call]
    weighty = [step for step in called if _has_weights(blocks.blocks[step.target])] or called
    if not weighty:
        return type(model).__name__
    if len(weighty) > 1:
        shared = [call for call in weighty[0].around if all(call in step.around for step in weighty)]
        if shared and shared[-1][0] in blocks.items:
            return shared[-1][0]
    return str(weighty[0].target)


def _segment(
    parts: Sequence[Part],
    given: tuple[int, ...],
    returned: tuple[int, ...],
    recording: Recording,
    blocks: Blocks,
    states: dict[str, Tensor],
) -> Segment:
    leaves = [leaf for part in parts for leaf in part.step.flat]
    counted = [(place, recording.values[number].rows) for place, number in enumerate(given)]
    asks = any(isinstance(leaf, Scaled) for leaf in leaves)
    return Segment(
        parts,
        given=given,
        returned=returned,
        rows=next((pair for pair in counted if pair[1] > 0), None) if asks else None,
        modules={part.step.target: blocks.blocks[part.step.target] for part in parts if part.step.is_call},
        states={leaf.path: states[leaf.path] for leaf in leaves if isinstance(leaf, State)},
        literals={leaf.number: recording.literals[leaf.number] for leaf in leaves if isinstance(leaf, Literal)},
    )
