"""``ignite profile``: measure a model's layers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, Duration, Kind
from ignite_scheduler.cli.output import console, emit, is_document, output_option, seconds, show, table

if TYPE_CHECKING:
    from rich.table import Table

    from ignite_scheduler.model import Job, Layer, Profile, Reference
    from ignite_scheduler.profiler import Progress

EPILOG: Final = """\b
Examples:
  ignite profile job.yaml --out gpt-small.profile.json
  ignite profile vgg11 --args width=0.25 --args size=32 --out vgg.profile.json
  ignite profile my.package:build --samples 1,4,16 --devices cpu,cuda:0 --out mine.profile.json
  ignite profile llama-7b --devices meta --out llama-7b.profile.json

\b
Give the file to a job as  model: {profile: FILE, ...}  or to 'ignite plan --profile FILE'.
Figures are medians over passes after a warm-up, on one thread, each device in a fresh process. Ctrl-C keeps the passes
that are done beside --out; the same command goes on from there. On the device 'meta' a model of any size is sized, in
seconds and without its memory: all bytes and FLOPs, no times; a plan then estimates those from each device's figures.
"""


class Sizes(click.ParamType[tuple[int, ...]]):
    """Sizes of microbatch, ``1,4,16``."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The sizes; a usage error if one is no whole number of at least 1."""
        try:
            sizes = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            sizes = (0,)
        if min(sizes) < 1:
            self.fail(f"expected whole numbers of at least 1 such as 1,4,16, found {value!r}", param, ctx)
        return sizes


class Devices(click.ParamType[tuple[str, ...]]):
    """Devices to measure on, ``cpu,cuda:0``."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The devices; a usage error if one stands twice or ``meta`` is not alone."""
        devices = tuple(part.strip() for part in str(value).split(","))
        if not all(devices) or len(set(devices)) < len(devices) or ("meta" in devices and len(devices) > 1):
            self.fail(f"expected different devices such as cpu,cuda:0, or meta alone, found {value!r}", param, ctx)
        return devices


@click.command(epilog=EPILOG)
@click.argument("source", metavar="JOB|MODEL")
@click.option("--args", "pairs", multiple=True, metavar="KEY=VALUE", help="An argument of the model. May be repeated.")
@click.option("--samples", type=Sizes(), metavar="N,N,…", help="Sizes of microbatch [default: 1,2,4,…,32].")
@click.option("--repeats", type=click.IntRange(min=1), help="Passes at each size [default: 20].")
@click.option("--time-limit", type=Duration(), help="No more passes after this time, such as 2min [default: 40s].")
@click.option(
    "--devices",
    "--device",
    type=Devices(),
    default="cpu",
    show_default=True,
    metavar="D,D,…",
    help="cpu, cuda:N; meta: size the model, don't run it.",
)
@click.option("--kind", type=Kind(), help="Kind of device under which the times stand [default: cpu, or the card's].")
@click.option("--out", type=FILE, metavar="FILE", help="Write the profile here.")
@output_option
def command(
    *,
    source: str,
    pairs: tuple[str, ...],
    samples: tuple[int, ...] | None,
    repeats: int | None,
    time_limit: float | None,
    devices: tuple[str, ...],
    kind: str | None,
    out: Path | None,
    output: str,
) -> None:
    """Measure the layers of JOB's model, of a MODEL of the zoo, or of your own pkg.mod:build."""
    from ignite_scheduler import api
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats import profile_document
    from ignite_scheduler.formats.files import write_json
    from ignite_scheduler.profiler import merge, partial_path

    if kind is not None and len(devices) > 1:
        raise click.UsageError("--kind names the times of one device: measure devices of your own kinds one by one")
    check_places(out)
    what = _with_arguments(api.resolve_source(source), pairs)
    partials = {device: partial_path(out, device) for device in devices} if out is not None else {}
    profiles = []
    for device in devices:
        partial = partials.get(device)
        title = f"{source} on {device}" if len(devices) > 1 else source
        with progress_on_stderr(title) as progress, _kept_at(partial):
            one = api.profile(
                what,
                samples=samples,
                repeats=repeats,
                time_limit=time_limit,
                device=device,
                kind=kind or _kind(device),
                progress=progress,
                partial=partial,
            )
        profiles.append(one)
    measured = reduce(merge, profiles)
    if out is not None:
        write_json(out, profile_document(measured))
        exits.say(f"profile: {out}")
    for partial in partials.values():
        partial.unlink(missing_ok=True)
    if is_document(output):
        emit(profile_document(measured), output)
    else:
        show(*_parts(measured))


@contextmanager
def _kept_at(partial: Path | None) -> Iterator[None]:
    """Say where an interrupted measurement is kept."""
    try:
        yield
    except KeyboardInterrupt:
        if partial is not None and partial.is_file():
            exits.say(f"kept what is done in {partial}: the same command goes on from there")
        raise


def _with_arguments(source: Job | Reference, pairs: tuple[str, ...]) -> Job | Reference:
    from ignite_scheduler.errors import InputError
    from ignite_scheduler.model import Reference

    if not pairs:
        return source
    if not isinstance(source, Reference):
        raise InputError("a job file has the arguments of its model in itself; --args goes with a model")
    args = dict(source.args)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"expected an argument such as width=0.25, found {pair!r}")
        args[key] = _plain(value)
    return replace(source, args=args)


def _plain(text: str) -> Any:
    """The value that a document would have in this place: number, true, false, or the text itself."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _kind(device: str) -> str | None:
    """The catalogue's name of a card, so that a discovered cluster and a profile agree."""
    if not device.startswith("cuda"):
        return None
    from ignite_scheduler.cli.cards import cuda_cards

    cards = list(cuda_cards())
    index = int(device.partition(":")[2] or 0)
    return cards[index].kind if index < len(cards) else None


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on a terminal, a line at the beginning elsewhere."""
    out = console(err=True)
    if not out.is_terminal:
        exits.say(f"measuring {what}")
        yield lambda _: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("measuring {task.description}"), BarColumn(), TextColumn("{task.fields[doing]}"))
    with Bars(*columns, TimeElapsedColumn(), console=out, transient=True) as bars:
        task = bars.add_task(what, total=None, doing="")
        yield lambda seen: bars.update(task, total=seen.total, completed=seen.done, doing=seen.doing)


def _parts(profile: Profile) -> list[Any]:
    sizes = ", ".join(str(size) for size in _sizes(profile))
    how = f"samples measured: {sizes}" if sizes else "sized, without times"
    head = f"[bold]{profile.name}[/]  {len(profile.layers)} layers, {profile.precision}, {how}"
    where = ", ".join(f"{key} {value}" for key, value in profile.provenance.items() if isinstance(value, str))
    return [head, "", _layer_table(profile), "", *_totals(profile), *_trust(profile), where]


def _trust(profile: Profile) -> list[str]:
    """How far the times spread from pass to pass, and which were far out."""
    spreads = profile.provenance.get("relative_spread")
    if not isinstance(spreads, dict) or not spreads:
        return []
    worst = max(spreads, key=lambda name: spreads[name])
    middle = profile.provenance.get("relative_spread_median", 0.0)
    lines = [
        f"spread of {profile.provenance.get('passes')} passes (middle half ÷ median): {middle:.1%} for the median "
        f"layer, {spreads[worst]:.1%} for {worst}"
    ]
    far = profile.provenance.get("far_out", ())
    lines += [
        f"  far out: {entry['layer']}, {entry['pass']}, ×{entry['samples']}: {entry['over_median']:.3g} × its median"
        for entry in far
    ]
    return [*lines, *profile.provenance.get("warnings", ()), ""]


def _sizes(profile: Profile) -> list[int]:
    times = profile.layers[0].times
    return sorted({size for points in times.values() for size in points})


def _layer_table(profile: Profile) -> Table:
    from ignite_scheduler.units import format_memory

    sizes = _sizes(profile)
    shown = list(dict.fromkeys((min(sizes), max(sizes)))) if sizes else []
    rows = [
        [
            layer.name,
            format_memory(layer.parameter_bytes),
            format_memory(layer.output_bytes),
            format_memory(layer.activation_bytes),
            *(_timed(profile, layer, shown) if shown else _worked(layer)),
        ]
        for layer in profile.layers
    ]
    columns = ["layer", "parameters", "output/sample", "kept/sample"]
    measured = [f"{way} ×{size}" for size in shown for way in ("forward", "backward")]
    columns += measured or ["forward/sample", "backward/sample"]
    return table(columns, rows, right="1234567")


def _timed(profile: Profile, layer: Layer, shown: list[int]) -> list[str]:
    kind = profile.reference or next(iter(profile.layers[0].times))
    return [seconds(time) for size in shown for time in _times(layer.times[kind], size)]


def _worked(layer: Layer) -> list[str]:
    return ["–" if flops is None else _flop(flops) for flops in (layer.forward_flops, layer.backward_flops)]


def _flop(flops: float) -> str:
    unit, factor = next(
        ((u, f) for u, f in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)) if flops >= f), ("FLOP", 1)
    )
    return f"{flops / factor:.4g}{unit}"


def _totals(profile: Profile) -> list[str]:
    """What a sized model has in all: its table may have a hundred lines. Nothing for a measured one."""
    if _sizes(profile):
        return []
    from ignite_scheduler.units import format_memory

    kept = sum(layer.activation_bytes for layer in profile.layers)
    forward = sum(layer.forward_flops or 0.0 for layer in profile.layers)
    backward = sum(layer.backward_flops or 0.0 for layer in profile.layers)
    count = profile.provenance.get("parameters")
    parameters = f"{count:,} parameters; " if isinstance(count, int) else ""
    return [
        f"{parameters}a sample: {format_memory(kept)} kept, {_flop(forward)} forward, {_flop(backward)} backward",
        "",
    ]


def _times(points: Any, size: int) -> tuple[float, float]:
    return points[size].forward, points[size].backward
