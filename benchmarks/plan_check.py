"""An independent judge of plan documents: what is wrong with a plan, worked out from the documents alone.

Every layer once for every sample, every device once, memory of every device, what the job asks for, and every figure
of the plan by code that shares nothing with the package's (see ``plan_figures.py`` and ``plan_clock.py``).

Usage: ``python benchmarks/plan_check.py plan.json job.yaml profile.json cluster.yaml [--margin 0.05]``; prints the
complaints, exit code 1 where there is one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ignite_scheduler.formats.source import read_source
from plan_clock import depths, joined
from plan_figures import Device, Figures, quantity
from plan_stages import ON_DEVICE, HeldStage, LaidOut

TOLERANCE = 1e-9


def check(
    plan: Mapping[str, Any],
    job: Mapping[str, Any],
    profile: Mapping[str, Any],
    cluster: Mapping[str, Any],
    *,
    margin: float = 0.0,
) -> list[str]:
    """Complaints about a plan made without a calibration; none = all is as the documents say.

    Parameters
    ----------
    margin
        The safety factor on memory that was asked for.
    """
    if not plan["feasible"]:
        return [] if plan["reason"]["code"] and plan["reason"]["text"] else ["a refusal without a reason"]
    figures = Figures(job, profile, cluster)
    complaints = list(_shape(plan, figures))
    if complaints:
        return complaints  # what follows needs stages that make sense
    complaints += _wishes(plan, job, figures)
    stages = [HeldStage(figures, stage) for stage in plan["stages"]]
    laid = LaidOut(figures, plan, stages, inputs_of(plan))
    if laid.complaints:
        return complaints + laid.complaints
    for stage, depth in zip(stages, laid.depths, strict=True):
        complaints += _memory(stage, depth, plan, margin)
    complaints += _times(plan, laid)
    complaints += _prediction(plan, job, laid)
    return complaints + list(_bound(plan))


def inputs_of(plan: Mapping[str, Any]) -> list[list[int]]:
    """The stages that feed each stage; those of a plain chain where the plan says nothing."""
    return [stage.get("inputs", [index - 1] if index else []) for index, stage in enumerate(plan["stages"])]


# --- shape ----------------------------------------------------------------------------------------------------------


def _shape(plan: Mapping[str, Any], figures: Figures) -> Iterator[str]:
    """Layers, shares and devices."""
    seen: set[str] = set()
    for index, stage in enumerate(plan["stages"]):
        if stage["index"] != index:
            yield f"stage {index} calls itself {stage['index']}"
        for share in stage["devices"]:
            if share["id"] not in figures.devices:
                yield f"stage {index}: there is no device {share['id']}"
            elif share["id"] in seen:
                yield f"device {share['id']} is used twice"
            seen.add(share["id"])
            if share["samples"] < 1:
                yield f"device {share['id']} has {share['samples']} samples"
        for name in stage["layers"]:
            if name not in figures.layers:
                yield f"stage {index}: there is no layer {name}"
        if len(set(stage["layers"])) != len(stage["layers"]):
            yield f"stage {index} holds a layer twice"
    inputs = inputs_of(plan)
    try:
        depths(inputs)
    except ValueError as error:
        yield str(error)
    yield from _coverage(plan, joined(inputs), figures)


def _coverage(plan: Mapping[str, Any], workers: Sequence[Sequence[int]], figures: Figures) -> Iterator[str]:
    """Every layer exactly once for every sample of a microbatch."""
    full, got = plan["microbatches"][0], dict.fromkeys(figures.layers, 0)
    for worker in workers:
        parts = {sum(share["samples"] for share in plan["stages"][stage]["devices"]) for stage in worker}
        if len(parts) > 1:
            yield f"stages {worker} feed each other but see {sorted(parts)} samples"
        names = [name for stage in worker for name in plan["stages"][stage]["layers"]]
        for name in names:
            got[name] = got.get(name, 0) + min(parts)
        if len(set(names)) != len(names):
            yield f"stages {worker} hold a layer twice"
    for name, samples in got.items():
        if samples != full:
            yield f"layer {name} sees {samples} of the {full} samples of a microbatch"


# --- what the job asks ----------------------------------------------------------------------------------------------


def _wishes(plan: Mapping[str, Any], job: Mapping[str, Any], figures: Figures) -> Iterator[str]:
    yield from _batch(plan, job["batch"])
    yield from _resources(plan, job.get("resources") or {}, figures)
    pipeline, stages = job.get("pipeline") or {}, plan["stages"]
    wish = {key: pipeline.get(key, "auto") for key in ("stages", "schedule", "split", "replicas")}
    if wish["schedule"] not in ("auto", plan["schedule"]) or plan["schedule"] not in ("gpipe", "1f1b"):
        yield f"the schedule is {plan['schedule']}, asked for is {wish['schedule']}"
    for worker in joined(inputs_of(plan)):
        if wish["stages"] not in ("auto", len(worker)):
            yield f"{len(worker)} stages, asked for are {wish['stages']}"
        if wish["split"] not in ("auto", [len(stages[stage]["layers"]) for stage in worker]):
            yield f"stages {worker} do not hold {wish['split']} layers"
    for stage in stages:
        width = len(stage["devices"])
        if wish["replicas"] not in ("auto", width):
            yield f"stage {stage['index']} has {width} devices, asked for are {wish['replicas']}"
        done = {
            "recompute": stage["recompute"],
            "offload": stage["offload"],
            "shard": stage["optimizer_shards"] > 1 or (pipeline.get("shard") is True and width == 1),
        }
        for action, value in done.items():
            asked = pipeline.get(action, False)
            if asked not in ("auto", value):
                yield f"stage {stage['index']}: {action} is {value}, asked for is {asked}"
        if stage["optimizer_shards"] not in (1, width):
            yield f"stage {stage['index']} spreads its optimizer over {stage['optimizer_shards']} of {width} devices"


def _batch(plan: Mapping[str, Any], batch: Mapping[str, Any]) -> Iterator[str]:
    sizes, total, micro = plan["microbatches"], batch["global"], batch.get("micro", "auto")
    if sum(sizes) != total:
        yield f"the microbatches sum to {sum(sizes)} of {total} samples"
    if len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0]:
        yield f"microbatches {sizes} are not equal but for a smaller last one"
    if micro != "auto" and sizes[0] != min(micro, total):
        yield f"a microbatch has {sizes[0]} samples, asked for are {micro}"


def _resources(plan: Mapping[str, Any], resources: Mapping[str, Any], figures: Figures) -> Iterator[str]:
    used = [share["id"] for stage in plan["stages"] for share in stage["devices"]]
    for name in resources.get("exclude") or ():
        if any(name in (device, figures.devices[device].node) for device in used):
            yield f"{name} is excluded"
    most, lists = resources.get("max_devices", "auto"), resources.get("any_of", "auto")
    if most not in ("auto", None) and len(used) > most:
        yield f"{len(used)} devices, allowed are {most}"
    kinds = sorted(figures.devices[device].kind for device in used)
    if lists not in ("auto", None) and kinds not in [
        sorted(kind for kind, count in wanted.items() for _ in range(count)) for wanted in lists
    ]:
        yield f"devices of kinds {kinds}, asked for is one of {lists}"
    for device in used:
        if figures.precision not in figures.devices[device].dtypes:
            yield f"{device} does not compute {figures.precision}"


# --- memory ---------------------------------------------------------------------------------------------------------


def _memory(stage: HeldStage, depth: int, plan: Mapping[str, Any], margin: float) -> Iterator[str]:
    count = len(plan["microbatches"])
    held = count if plan["schedule"] == "gpipe" else min(count, depth)
    if stage.entry["in_flight"] != held:
        yield f"stage {stage.index}: {stage.entry['in_flight']} in flight, should be {held}"
    for share in stage.entry["devices"]:
        device = stage.figures.devices[share["id"]]
        need = stage.memory(share["samples"], held) * (1 + margin)
        yield from differs(f"memory of {device.id}", share["memory_bytes"], need)
        yield from differs(f"memory limit of {device.id}", share["memory_limit_bytes"], device.limit)
        if need > device.limit * (1 + TOLERANCE):
            yield f"{device.id} needs {need:.6g} of {device.limit:.6g} bytes"
        if stage.entry["offload"] and held > ON_DEVICE and device.host is None:
            yield f"{device.id} offloads, but its link to the host is unknown"


def differs(noun: str, found: float | None, expected: float | None) -> Iterator[str]:
    """A complaint where two figures are not the same."""
    if found is None or expected is None or not (math.isfinite(found) and math.isfinite(expected)):
        finite = expected is not None and math.isfinite(expected)
        if (found is not None and math.isfinite(found)) or finite:
            yield f"{noun} is {found}, should be {expected}"
    elif abs(found - expected) > TOLERANCE * max(1.0, abs(expected)) and found != expected:
        yield f"{noun} is {found!r}, should be {expected!r}"


# --- times and money ------------------------------------------------------------------------------------------------


def _times(plan: Mapping[str, Any], laid: LaidOut) -> Iterator[str]:
    for index, entry in enumerate(plan["stages"]):
        yield from differs(f"forward of stage {index}", entry["forward_s"], laid.seconds[index]["F"][0])
        yield from differs(f"backward of stage {index}", entry["backward_s"], laid.seconds[index]["B"][0])
        yield from differs(f"update of stage {index}", entry["update_s"], laid.updates[index])
        rings = sum(ring.seconds for ring in laid.reductions if index in ring.stages)
        yield from differs(f"all-reduce of stage {index}", entry["allreduce_s"], rings)


def _prediction(plan: Mapping[str, Any], job: Mapping[str, Any], laid: LaidOut) -> Iterator[str]:
    said, step, steps = plan["predicted"], laid.step, job.get("steps")
    yield from differs("step", said["step_s"], step)
    yield from differs("samples a second", said["samples_per_s"], sum(plan["microbatches"]) / step if step else None)
    yield from differs("bytes moved", said["transfer_bytes"], laid.moved)
    devices = [device for stage in laid.stages for device in stage.devices]
    busy = laid.busy()
    if step:
        share = sum(busy.values()) / (len(devices) * step)
        yield from differs("bubble", said["bubble_fraction"], 1 - share)
    duration = None if steps is None else steps * step
    yield from differs("duration", said["duration_s"], duration)
    cost = _cost(devices, duration)
    yield from differs("cost", said["cost"], cost)
    yield from differs("energy", said["energy_j"], _energy(devices, busy, step, steps))
    queue = job.get("queue") or {}
    deadline = quantity(queue.get("deadline"), "seconds")
    if deadline is not None and duration is not None and duration > deadline * (1 + TOLERANCE):
        yield f"the job takes {duration} s, its deadline is {deadline} s"
    if queue.get("budget") is not None and cost is not None and cost > queue["budget"] * (1 + TOLERANCE):
        yield f"the job costs {cost}, its budget is {queue['budget']}"


def _cost(devices: Sequence[Device], duration: float | None) -> float | None:
    if duration is None or any(device.price is None for device in devices):
        return None
    return sum(device.price or 0.0 for device in devices) * duration


def _energy(devices: Sequence[Device], busy: Mapping[str, float], step: float, steps: int | None) -> float | None:
    if steps is None or any(device.busy_power is None or device.idle_power is None for device in devices):
        return None
    return steps * sum(
        (device.busy_power or 0.0) * busy[device.id] + (device.idle_power or 0.0) * (step - busy[device.id])
        for device in devices
    )


def _bound(plan: Mapping[str, Any]) -> Iterator[str]:
    bound, step = plan["bound"], plan["predicted"]["step_s"]
    if bound["step_s"] > step * (1 + TOLERANCE):
        yield f"the bound {bound['step_s']} is above the step {step}"
    gap = step / bound["step_s"] - 1 if bound["step_s"] else None
    yield from differs("gap", bound["gap"], gap)
    if bound["optimal"] and plan["resolved"].get("objective", "time") == "time" and (gap or 0.0) > TOLERANCE:
        yield f"called optimal with a gap of {gap}"


# --- program --------------------------------------------------------------------------------------------------------


def main() -> int:
    """Print what is wrong with a plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("plan", "job", "profile", "cluster"):
        parser.add_argument(name)
    parser.add_argument("--margin", type=float, default=0.0)
    options = parser.parse_args()
    paths = (options.plan, options.job, options.profile, options.cluster)
    documents = [read_source(path).data for path in paths]
    complaints = check(*documents, margin=options.margin)
    print("\n".join(complaints) or "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
