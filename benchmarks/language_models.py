"""Plans for published language models on mixed clusters, with memory actions: profiles from their shapes by formula.

LLaMA-7B (Touvron et al., 2023, table 2), Falcon-40B (Almazrouei et al., 2023), BLOOM-176B (BigScience, 2022, table 3)
at sequences of 2,048 tokens in 16-bit precision with Adam. Matrix products count 2 FLOPs a weight and token, attention
4·s²·h a layer. Activations a token and layer follow Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models" (2022), section 4, without the s² part, which fused attention does not keep. Times come from the
catalogue's roofline.

Usage: ``python benchmarks/language_models.py [NAME …]``.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import Final

from ignite_scheduler.cost import evaluate
from ignite_scheduler.model import (
    MODEL_INPUT,
    Batch,
    Infeasible,
    Job,
    Layer,
    LayerInput,
    Optimizer,
    PipelineChoice,
    Plan,
    Profile,
    Reference,
)
from ignite_scheduler.planner import Problem
from ignite_scheduler.planner.found import Found
from ignite_scheduler.planner.large import search
from ignite_scheduler.planner.request import requested
from scale_cases import ABILITIES, EIGHT_KINDS, FOUR_KINDS, SEQUENCE, mixed_cluster
from tables import stamp, table
from yardstick import beside, yardstick

ATTENTION_KEPT: Final = 11.0
"""Bytes kept for each element of the stream by attention; by the feed-forward part 19 (4 times the width)."""
FORWARD_KEPT: Final = 19.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder-only model: ``key_value`` is the width of keys and values together, ``gated``: three matrices, not two.

    ``tied``: whether the head shares the embedding's weights.
    """

    blocks: int
    hidden: int
    inner: int
    key_value: int
    vocabulary: int
    gated: bool
    tied: bool
    kinds: tuple[str, ...]
    devices: int
    batch: int
    micro: int


MODELS: Final = {
    "llama-7b": Shape(
        blocks=32, hidden=4096, inner=11008, key_value=8192, vocabulary=32_000, gated=True, tied=False,
        kinds=FOUR_KINDS, devices=64, batch=512, micro=8,
    ),
    "falcon-40b": Shape(
        blocks=60, hidden=8192, inner=32768, key_value=1024, vocabulary=65_024, gated=False, tied=True,
        kinds=("A100-SXM4-80GB", "A100-SXM4-40GB", "V100-SXM2-32GB", "A10"), devices=128, batch=512, micro=4,
    ),
    "bloom-176b": Shape(
        blocks=70, hidden=14336, inner=57344, key_value=28672, vocabulary=250_880, gated=False, tied=True,
        kinds=EIGHT_KINDS[:4], devices=512, batch=1024, micro=4,
    ),
}  # fmt: skip


def language_profile(name: str, shape: Shape) -> Profile:
    """Embedding, an attention and a feed-forward layer a block, head; bytes at 2 a number."""
    tokens, hidden = SEQUENCE, shape.hidden
    stream = 2.0 * tokens * hidden
    table_weights = float(shape.vocabulary * hidden)
    parts: list[tuple[str, float, float, float]] = [("embedding", table_weights, 0.0, stream)]
    attention = float(2 * hidden * hidden + hidden * shape.key_value)
    forward = float((3 if shape.gated else 2) * hidden * shape.inner)
    for block in range(shape.blocks):
        flops = 2.0 * tokens * attention + 4.0 * tokens * tokens * hidden
        parts.append((f"attention{block}", attention, flops, ATTENTION_KEPT / 2 * stream))
        parts.append((f"forward{block}", forward, 2.0 * tokens * forward, FORWARD_KEPT / 2 * stream))
    parts.append(("head", table_weights, 2.0 * tokens * table_weights, stream + 4.0 * tokens * shape.vocabulary))
    layers = []
    for index, (label, weights, flops, kept) in enumerate(parts):
        source = parts[index - 1][0] if index else MODEL_INPUT
        layers.append(
            Layer(
                name=label,
                parameter_bytes=2.0 * weights,
                output_bytes=stream,
                activation_bytes=kept,
                forward_flops=flops,
                backward_flops=2.0 * flops,
                times={},
                inputs=(LayerInput(source=source),),
            )
        )
    tied = (("embedding", "head"),) if shape.tied else ()
    return Profile(name=name, precision="fp16", reference=None, layers=tuple(layers), tied=tied)


def language_problem(name: str) -> Problem:
    """The model of that name on its cluster, all memory actions permitted."""
    shape = MODELS[name]
    job = Job(
        name=name,
        model=Reference(profile=name),
        batch=Batch(total=shape.batch, micro=shape.micro),
        steps=1,
        optimizer=Optimizer(name="adam"),
        precision="fp16",
        pipeline=PipelineChoice(recompute="auto", shard="auto", offload=False),
    )
    cluster = mixed_cluster(shape.kinds, shape.devices)
    return Problem(job=job, profile=language_profile(name, shape), cluster=cluster, abilities=ABILITIES)


def planned(problem: Problem) -> tuple[Found, Plan | None]:
    """What the search finds and the plan that it makes."""
    request = requested(problem)
    assert not isinstance(request, Infeasible)
    found = search(problem, request)
    if found.best is None:
        return found, None
    return found, evaluate(problem.job, problem.profile, problem.cluster, found.best)


def main() -> None:
    """Print a table of the plans."""
    unit = yardstick()
    planned(replace(language_problem("llama-7b"), work=1000))  # compiles
    rows = []
    for name in sys.argv[1:] or list(MODELS):
        problem = language_problem(name)
        begin = time.process_time()
        found, plan = planned(problem)
        seconds = time.process_time() - begin
        if plan is None:
            rows.append([name, str(MODELS[name].devices), "no plan found", "", "", "", beside(seconds, unit)])
            continue
        fits = all(share.memory <= share.memory_limit for stage in plan.stages for share in stage.devices)
        again = sum(stage.recompute for stage in plan.stages)
        sharded = sum(stage.optimizer_shards > 1 for stage in plan.stages)
        used = f"{plan.num_stages} stages, {len(plan.device_ids)} devices, {again} recompute, {sharded} shard"
        step, gap = plan.predicted.step, found.value / found.bound - 1
        rows.append(
            [name, str(MODELS[name].devices), used, f"{step:.2f} s", f"{gap:.0%}", str(fits), beside(seconds, unit)]
        )
    print(stamp())
    print(table(["model", "devices there", "plan", "step", "gap", "fits", "CPU"], rows))


if __name__ == "__main__":
    main()
