"""Ranks on this machine: a process for each device, with the cluster's links played by the engine's wires."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ignite_scheduler.engine.processes import fork, meeting_point, new_scope, use_loopback, wake_in_time
from ignite_scheduler.errors import ExternalError, IgniteError, InputError
from ignite_scheduler.model import Cluster, Link
from ignite_scheduler.model.cluster import FREE_BANDWIDTH
from ignite_scheduler.profiler.links.analysis import ordered_pairs
from ignite_scheduler.profiler.links.nouns import Endpoint, LinksMeasured, Options, Pair, Seat


def measure_here(
    cluster: Cluster,
    options: Options,
    *,
    play: bool = True,
    places: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LinksMeasured:
    """The links between processes of this machine, one for each device of ``cluster``.

    Parameters
    ----------
    play
        Play the cluster's links; False = measure what is really between the processes.
    places
        Device id → ``cuda:N`` for devices that are really here; they talk through the options' backend.
    progress
        Called with the number of steps done and of all steps.

    Raises
    ------
    InputError
        Fewer than two devices, or none of them linked.
    ExternalError
        A process died or lost its peers.
    """
    places = places or {}
    endpoints = tuple(Endpoint(device=d.id, node=d.node, place=places.get(d.id, "cpu")) for d in cluster.devices)
    if len(endpoints) < 2:
        raise InputError(f"links are between at least 2 devices; cluster {cluster.name!r} has {len(endpoints)}")
    links = _played(cluster) if play else {}
    pairs = tuple(links) or tuple(ordered_pairs(len(endpoints)))
    with tempfile.TemporaryDirectory(prefix="ignite-links-") as directory:
        seats = [
            Seat(rank=rank, endpoints=endpoints, pairs=pairs, links=links, directory=directory)
            for rank in range(len(endpoints))
        ]
        return _run(seats, options, progress or (lambda done, total: None))


def _played(cluster: Cluster) -> dict[Pair, Link]:
    """The links to play, by pair; none where all are free."""
    devices = cluster.devices
    found = {(a, b): cluster.link(devices[a], devices[b]) for a, b in ordered_pairs(len(devices))}
    links = {pair: link for pair, link in found.items() if link is not None}
    if not links:
        raise InputError(f"no two devices of cluster {cluster.name!r} are linked: say so in its 'links'")
    if all(link.bandwidth == FREE_BANDWIDTH for link in links.values()):
        return {}
    free = next((pair for pair, link in links.items() if link.bandwidth == FREE_BANDWIDTH), None)
    if free is not None:
        raise InputError(f"the link from {devices[free[0]].id} to {devices[free[1]].id} has no bandwidth to play")
    return links


def _run(seats: list[Seat], options: Options, progress: Callable[[int, int], None]) -> LinksMeasured:
    port, scope = meeting_point(), new_scope("links")
    members = [
        fork(_serve, partial(_arguments, seat, options, port, scope), f"links rank {seat.rank}") for seat in seats
    ]
    try:
        return _follow(members, progress)
    finally:
        for process, pipe in members:
            pipe.close()
            process.kill()
        for process, _ in members:
            process.join()


def _arguments(seat: Seat, options: Options, port: int, scope: str, pipe: Connection) -> tuple[Any, ...]:
    return seat, options, pipe, port, scope


def _follow(members: list[tuple[BaseProcess, Connection]], progress: Callable[[int, int], None]) -> LinksMeasured:
    """The result of rank 0, or the first trouble of any rank."""
    pipes = {pipe: process for process, pipe in members}
    while True:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                pipes[pipe].join(1)
                raise ExternalError(f"{pipes[pipe].name} died ({pipes[pipe].exitcode})") from None
            match message:
                case LinksMeasured():
                    return message
                case BaseException():
                    raise message
                case (done, total):
                    progress(done, total)


def _serve(seat: Seat, options: Options, pipe: Connection, port: int, scope: str) -> None:
    """The process of one rank; it dies with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the measurement
    threading.Thread(target=_die_with, args=(pipe,), daemon=True, name="parent").start()
    import torch
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    wake_in_time()
    use_loopback()
    try:
        limit = timedelta(seconds=options.timeout)
        store = PrefixStore(scope, TCPStore("127.0.0.1", port, is_master=False, timeout=limit))
        tell: Callable[[int, int], None] | None = None
        if seat.rank == 0:
            tell = lambda done, total: pipe.send((done, total))  # noqa: E731
        outcome: Any = run_rank(seat, options, store, tell)
    except BaseException as error:
        outcome = error if isinstance(error, IgniteError) else ExternalError(f"rank {seat.rank}: {error}")
    if seat.rank == 0 or isinstance(outcome, BaseException):
        pipe.send(outcome)
    threading.Event().wait()  # until the parent has what it needs and ends us: others may still need our store


def run_rank(
    seat: Seat, options: Options, store: Any, progress: Callable[[int, int], None] | None = None
) -> LinksMeasured:
    """Join the process group in ``store``, measure, and say when that was."""
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    from ignite_scheduler.profiler.links.rank import Rank

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    limit = timedelta(seconds=options.timeout)
    if options.backend == "nccl":
        torch.cuda.set_device(seat.place)
    dist.init_process_group(
        options.backend, store=PrefixStore("group", store), rank=seat.rank, world_size=seat.world, timeout=limit
    )
    return Rank(seat, options, store, progress).run()


def _die_with(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(0)
