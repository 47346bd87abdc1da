"""``ignite links``: the links of a cluster file, or measured ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ignite_scheduler.cli import exits
from ignite_scheduler.cli.arguments import FILE, Duration
from ignite_scheduler.cli.output import console, emit, is_document, output_option, show

if TYPE_CHECKING:
    from ignite_scheduler.profiler.links import Endpoint, LinksMeasured, Meeting, Options

EPILOG: Final = """\b
Examples:
  ignite links --cluster cluster.yaml              the links that the file declares
  ignite links measure                             between processes of this machine
  ignite links measure --cluster cluster.yaml      one process a device, the file's links played by the engine
  ignite links measure --cluster cluster.yaml --real --write links.yaml
  ignite links measure --join 10.0.0.1:29500 --rank 0 --world 2      on the first machine
  ignite links measure --join 10.0.0.1:29500 --rank 1 --world 2      on the second
"""


@click.group(epilog=EPILOG, invoke_without_command=True)
@click.option("-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="The cluster's document.")
@output_option
@click.pass_context
def command(ctx: click.Context, *, cluster_file: Path | None, output: str) -> None:
    """Show the links that a cluster file declares, or measure real ones."""
    if ctx.invoked_subcommand is not None:
        return
    if cluster_file is None:
        raise click.UsageError("give --cluster FILE, or 'measure'")
    from ignite_scheduler import api
    from ignite_scheduler.cli.devices import link_table
    from ignite_scheduler.formats import cluster_document

    cluster = api.load_cluster(cluster_file)
    if is_document(output):
        emit({"links": cluster_document(cluster).get("links", {})}, output)
    else:
        show(link_table(cluster))


class Sizes(click.ParamType[tuple[int, ...]]):
    """Sizes of a message, ``4KiB,1MiB``, in bytes."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The sizes; a usage error if one is none."""
        from ignite_scheduler.errors import InputError
        from ignite_scheduler.units import parse_memory

        try:
            return tuple(int(parse_memory(part)) for part in str(value).split(","))
        except InputError as error:
            self.fail(f"expected sizes such as 4KiB,64KiB,1MiB: {error}", param, ctx)


@command.command("measure", epilog=EPILOG)
@click.option("-c", "--cluster", "cluster_file", type=FILE, metavar="FILE", help="One process for each of its devices.")
@click.option(
    "--real", is_flag=True, help="Measure what is really between the processes; do not play the file's links."
)
@click.option(
    "--join", metavar="HOST:PORT", help="Measure between machines: where rank 0 listens (127.0.0.1 if no HOST)."
)
@click.option("--rank", type=click.IntRange(min=0), help="With --join: which of the processes this is, from 0.")
@click.option("--world", type=click.IntRange(min=2), help="With --join: how many processes there are.")
@click.option("--device", metavar="NODE/ID", help="With --join: what this process stands for [default: HOST/rankR].")
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), default="gloo", show_default=True)
@click.option("--sizes", type=Sizes(), metavar="SIZE,…", help="Sizes of message [default: powers of 4, 4KiB to 16MiB].")
@click.option("--repeats", type=click.IntRange(min=1), default=10, show_default=True, help="Messages of each size.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Times over all pairs.")
@click.option(
    "--patience", type=Duration(), default=1.0, metavar="TIME", help="Most time for one size of one pair [1s]."
)
@click.option(
    "--timeout", type=Duration(), default=120.0, metavar="TIME", help="When a silent peer counts as lost [2min]."
)
@click.option(
    "--write", "target", type=FILE, metavar="FILE", help="Write the 'links:' section for a cluster file here."
)
@output_option
def measure(
    *,
    cluster_file: Path | None,
    real: bool,
    join: str | None,
    rank: int | None,
    world: int | None,
    device: str | None,
    backend: str,
    sizes: tuple[int, ...] | None,
    repeats: int,
    rounds: int,
    patience: float,
    timeout: float,
    target: Path | None,
    output: str,
) -> None:
    """Measure latency and bandwidth between devices, by size of the message, each pair in both directions.

    On one machine: a process for each device of the cluster file (or of this machine). Between machines: start the
    same command on each with --join, --rank and --world, or with torchrun; rank 0 prints.
    """
    from ignite_scheduler.cli.places import check_places
    from ignite_scheduler.formats.files import write_yaml
    from ignite_scheduler.profiler.links import DEFAULT_SIZES, Options, links_section

    check_places(target)
    options = Options(
        sizes=sizes or DEFAULT_SIZES,
        repeats=repeats,
        rounds=rounds,
        patience=patience,
        timeout=timeout,
        backend="nccl" if backend == "nccl" else "gloo",
    )
    meeting = _meeting(join, rank, world)
    if meeting is None:
        measured = _here(cluster_file, options, play=not real)
    else:
        measured = _joined(meeting, cluster_file, device, options)
        if meeting.rank != 0:
            return
    if target is not None:
        write_yaml(target, {"links": links_section(measured)})
        exits.say(f"links: {target}")
    _print(measured, output)


def _meeting(join: str | None, rank: int | None, world: int | None) -> Meeting | None:
    from ignite_scheduler.profiler.links import Meeting

    if join is not None:
        if rank is None or world is None:
            raise click.UsageError("--join needs --rank and --world: which of how many processes this is")
        return Meeting.parse(join, rank, world)
    if rank is not None or world is not None:
        raise click.UsageError("--rank and --world go with --join HOST:PORT")
    return Meeting.from_environment(os.environ)


def _here(cluster_file: Path | None, options: Options, *, play: bool) -> LinksMeasured:
    from ignite_scheduler import api
    from ignite_scheduler.cli.discovery import cluster_document, this_machine
    from ignite_scheduler.errors import InputError
    from ignite_scheduler.executors.places import cuda_places
    from ignite_scheduler.formats import parse_cluster
    from ignite_scheduler.profiler.links import measure_here

    cluster = (
        parse_cluster(cluster_document(this_machine())) if cluster_file is None else api.load_cluster(cluster_file)
    )
    places = cuda_places(cluster) if options.backend == "nccl" else {}
    absent = [d.id for d in cluster.devices if d.id not in places] if options.backend == "nccl" else []
    if absent:
        raise InputError(f"nccl links CUDA devices of this machine; {', '.join(absent)} is none: use --backend gloo")
    with progress_on_stderr() as progress:
        return measure_here(cluster, options, play=play and not places, places=places, progress=progress)


def _joined(meeting: Meeting, cluster_file: Path | None, device: str | None, options: Options) -> LinksMeasured:
    from ignite_scheduler.profiler.links import measure_joined

    endpoint = _endpoint(meeting, cluster_file, device, options)
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a wait for a peer is deaf to Python's Ctrl-C; there is nothing to save
    exits.say(f"rank {meeting.rank} of {meeting.world}, {endpoint.device}, meets at {meeting.host}:{meeting.port}")
    if meeting.rank != 0:
        return measure_joined(meeting, endpoint, options)
    with progress_on_stderr() as progress:
        return measure_joined(meeting, endpoint, options, progress=progress)


def _endpoint(meeting: Meeting, cluster_file: Path | None, device: str | None, options: Options) -> Endpoint:
    """What this rank stands for: what --device says, the file's device of that number, or the host."""
    import socket

    from ignite_scheduler import api
    from ignite_scheduler.errors import InputError
    from ignite_scheduler.profiler.links import Endpoint

    place = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if options.backend == "nccl" else "cpu"
    if device is None and cluster_file is not None:
        devices = api.load_cluster(cluster_file).devices
        if len(devices) != meeting.world:
            raise InputError(
                f"the cluster has {len(devices)} devices and --world is {meeting.world}: start one process for each "
                "device, or name this one with --device"
            )
        return Endpoint(device=devices[meeting.rank].id, node=devices[meeting.rank].node, place=place)
    host = socket.gethostname().split(".")[0] or "localhost"
    name = device or f"{host}/rank{meeting.rank}"
    node, slash, own = name.partition("/")
    if not (node and slash and own):
        raise InputError(f"expected a device as NODE/ID, found {name!r}")
    return Endpoint(device=name, node=node, place=place)


def _print(measured: LinksMeasured, output: str) -> None:
    from ignite_scheduler.cli.link_tables import parts
    from ignite_scheduler.profiler.links import links_document

    if is_document(output):
        emit(links_document(measured), output)
    else:
        show(*parts(measured, wide=output == "wide"))


@contextmanager
def progress_on_stderr() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, a line at the beginning elsewhere."""
    out = console(err=True)
    if not out.is_terminal:
        exits.say("measuring links")
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("measuring links"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
