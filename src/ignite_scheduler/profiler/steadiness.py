"""Does a model return the same shapes every time? Stages agree once on what they hand over."""

from __future__ import annotations

from typing import Final

import torch

from ignite_scheduler.engine.chain import describe
from ignite_scheduler.errors import InputError
from ignite_scheduler.profiler.passes import Bench, as_leaves

_TIMES: Final = 3


def check_shapes(bench: Bench) -> None:
    """Run the chain forward a few times at its smallest size.

    Raises
    ------
    InputError
        A layer's outputs change type or shape from call to call; the message names it and what it was given.
    """
    size = min(bench.batches)
    known: dict[int, str] = {}
    with torch.no_grad():
        for step in range(_TIMES):
            values = bench.batches[size][0]
            for stage in bench.stages:
                given, leaves = describe(values), as_leaves(values)
                values = stage(leaves, seed=bench.seed, step=step, samples=bench.samples(size))
                found = describe(values)
                if known.setdefault(stage.index, found) != found:
                    (name,) = stage.layers._modules
                    raise InputError(
                        f"layer {name!r} with an input of {given} returns {known[stage.index]} and then {found}: "
                        "shapes must be the same from call to call, since stages agree on them once"
                    )
