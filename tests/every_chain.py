"""Every chain of groups that a job permits, one by one, judged by code that shares nothing with the planner.

Any cut, any devices in a stage, any shares, any memory actions: a wider family than any search has. Groups list their
devices by id. For about three layers, devices and samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

from plan_figures import Figures
from plan_stages import ON_DEVICE, HeldStage, LaidOut
from small_documents import Documents

WISHED = {True: (True,), False: (False,), "auto": (False, True)}


class Least(NamedTuple):
    """The least step of a chain that fits, and the least bytes that are missing; infinite where there is none."""

    step: float
    shortfall: float


class Frame(NamedTuple):
    """Cut and groups of a chain: for each stage all its entries, and the microbatches that it holds."""

    schedule: str
    sizes: list[int]
    held: list[int]
    entries: list[list[HeldStage]]


def least(documents: Documents) -> Least:
    """The best of all chains by their step, and by what they lack."""
    figures = Figures(*documents)
    step = shortfall = math.inf
    for frame in frames(documents, figures):
        first = [entries[0] for entries in frame.entries]
        if _laid(figures, frame, first).complaints:  # no links or no times, whatever the shares
            continue
        lacks = [
            [_lacking(stage, held) for stage in entries]
            for held, entries in zip(frame.held, frame.entries, strict=True)
        ]
        shortfall = min(shortfall, sum(map(min, lacks)))
        fitting = [
            [stage for stage, lack in zip(entries, each, strict=True) if lack <= 1e-9]
            for entries, each in zip(frame.entries, lacks, strict=True)
        ]
        for stages in product(*fitting):
            step = min(step, _laid(figures, frame, stages).step)
    return Least(step, shortfall)


def _laid(figures: Figures, frame: Frame, stages: Sequence[HeldStage]) -> LaidOut:
    plan = {"microbatches": frame.sizes, "schedule": frame.schedule}
    return LaidOut(figures, plan, stages, [[index - 1] if index else [] for index in range(len(stages))])


def _lacking(stage: HeldStage, held: int) -> float:
    needs = zip(stage.devices, stage.shares, strict=True)
    return sum(max(0.0, stage.memory(samples, held) - device.limit) for device, samples in needs)


def frames(documents: Documents, figures: Figures) -> Iterator[Frame]:
    """Cuts and groups that the job permits, links and times aside."""
    pipeline = documents.job["pipeline"]
    schedules = ("1f1b", "gpipe") if pipeline.get("schedule", "auto") == "auto" else (pipeline["schedule"],)
    total, micro = (documents.job["batch"][key] for key in ("global", "micro"))
    for full in range(1, total + 1) if micro == "auto" else (min(micro, total),):
        count = -(-total // full)
        sizes = [full] * (count - 1) + [total - (count - 1) * full]
        for groups, cut in _groups(documents, figures):
            if max(map(len, groups)) > full:
                continue
            for schedule in schedules:
                held = [count if schedule == "gpipe" else min(count, len(groups) - s) for s in range(len(groups))]
                entries = [
                    list(_entries(figures, pipeline, s, names, group, full, held[s]))
                    for s, (group, names) in enumerate(zip(groups, cut, strict=True))
                ]
                if all(entries):
                    yield Frame(schedule, sizes, held, entries)


def _groups(documents: Documents, figures: Figures) -> Iterator[tuple[list[list[str]], list[list[str]]]]:
    """Devices and layers of each stage."""
    pipeline, resources = documents.job["pipeline"], documents.job["resources"]
    out = resources.get("exclude") or ()
    ids = sorted(
        name for name, device in figures.devices.items() if figures.precision in device.dtypes and name not in out
    )
    wide = {pipeline["replicas"]} if "replicas" in pipeline else set(range(len(ids) + 1))
    most, num_layers = resources.get("max_devices", len(ids)), len(figures.names)
    for stages in range(1, min(num_layers, len(ids)) + 1):
        for inner in combinations(range(1, num_layers), stages - 1):
            cut = [figures.names[a:b] for a, b in pairwise((0, *inner, num_layers))]
            if pipeline.get("stages", stages) != stages or pipeline.get("split", list(map(len, cut))) != list(
                map(len, cut)
            ):
                continue
            for where in product(range(-1, stages), repeat=len(ids)):
                groups = [[name for name, s in zip(ids, where, strict=True) if s == stage] for stage in range(stages)]
                widths = set(map(len, groups))
                if 0 in widths or sum(map(len, groups)) > most or not widths <= wide:
                    continue
                kinds = sorted(figures.devices[name].kind for group in groups for name in group)
                wanted = resources.get("any_of")
                if wanted and kinds not in [sorted(k for k, n in each.items() for _ in range(n)) for each in wanted]:
                    continue
                yield groups, cut


def _entries(
    figures: Figures, pipeline: dict[str, Any], index: int, names: list[str], group: list[str], full: int, held: int
) -> Iterator[HeldStage]:
    """Every way in which a group can hold some layers: shares and memory actions."""
    wishes = [WISHED[pipeline.get(action, False)] for action in ("recompute", "shard", "offload")]
    known = all(figures.devices[name].host is not None for name in group)
    for recompute, shard, offload in product(*wishes):
        if offload and held > ON_DEVICE and not known:
            continue
        for segments in _segments(names, whole=pipeline["recompute"] is True) if recompute else ((),):
            for shares in _shares(full, len(group)):
                entry = {
                    "index": index,
                    "layers": names,
                    "devices": [{"id": name, "samples": n} for name, n in zip(group, shares, strict=True)],
                    "recompute": recompute,
                    "recompute_segments": segments,
                    "offload": offload,
                    "optimizer_shards": len(group) if shard else 1,
                }
                yield HeldStage(figures, entry)


def _shares(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    for inner in combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in pairwise((0, *inner, total)))


def _segments(names: list[str], *, whole: bool) -> Iterator[list[tuple[str, str]]]:
    """Ways to recompute: all layers in one or more segments, and unless all must be, each run of some of them."""
    count = len(names)
    for parts in range(1, count + 1):
        for inner in combinations(range(1, count), parts - 1):
            yield [(names[a], names[b - 1]) for a, b in pairwise((0, *inner, count))]
    if not whole:
        for a, b in combinations(range(count + 1), 2):
            if (a, b) != (0, count):
                yield [(names[a], names[b - 1])]
