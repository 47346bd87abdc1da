"""The process of one rank: joins the others, trains, and tells the supervisor how it ended.

It dies with its supervisor: a thread reads the supervisor's pipe, and the end of that pipe is the end of the process.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Final

from ignite_scheduler.engine.blame import Trouble
from ignite_scheduler.engine.groups import ControlGroup
from ignite_scheduler.engine.processes import use_loopback, wake_in_time
from ignite_scheduler.engine.reports import Report
from ignite_scheduler.engine.specification import GangSpec

EXIT_JOB: Final = 3
"""Exit status after an error of the job's own, or of ours."""
EXIT_PEER: Final = 4
"""Exit status after losing contact with another rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """From the supervisor: stop at the next common step boundary."""

    save: bool


FromRank = Report | Trouble


def main(spec: GangSpec, rank: int, pipe: Connection, port: int, scope: str, group: ControlGroup | None) -> None:
    """Run one rank to its end. ``port`` and ``scope`` say where the ranks meet; ``group`` is what holds this one."""
    # A terminal sends Ctrl-C to the whole process group, but what to make of it is the supervisor's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    from ignite_scheduler.engine.allocation import return_freed_memory
    from ignite_scheduler.engine.training import StopRequest, Trainer

    wake_in_time()
    if group is not None:
        group.add(os.getpid())
    torch.set_num_threads(1)
    return_freed_memory()  # until the memory of a step has been measured
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    request = StopRequest()
    threading.Thread(target=_listen, args=(pipe, request), daemon=True, name="supervisor").start()
    status = 0
    try:
        store = _join(spec, rank, port, scope)
        Trainer(spec, rank, store, pipe.send, request).run()
    except BaseException as error:
        trouble = _explain(error)
        pipe.send(trouble)
        status = EXIT_PEER if trouble.kind == "peer" else EXIT_JOB
    # Not through the interpreter's exit: its threads of gloo may wait for peers that are gone.
    os._exit(status)


def _listen(pipe: Connection, request: object) -> None:
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            os._exit(EXIT_PEER)
        if isinstance(message, Stop):
            request.save = message.save  # type: ignore[attr-defined]
            request.stop = True  # type: ignore[attr-defined]


def _join(spec: GangSpec, rank: int, port: int, scope: str) -> object:
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    use_loopback()
    timeout = timedelta(seconds=spec.timeout)
    store = PrefixStore(scope, TCPStore("127.0.0.1", port, is_master=False, timeout=timeout))
    if spec.devices[rank].place.startswith("cuda"):
        torch.cuda.set_device(spec.devices[rank].place)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if spec.backend == "nccl" else spec.backend,
        store=PrefixStore("group", store),
        rank=rank,
        world_size=len(spec.devices),
        timeout=timeout,
    )
    return store


def _explain(error: BaseException) -> Trouble:
    from ignite_scheduler.engine.chain import LayerError
    from ignite_scheduler.engine.memory import DeviceMemoryError
    from ignite_scheduler.engine.transport import PeerLostError
    from ignite_scheduler.errors import ExternalError, IgniteError

    if isinstance(error, DeviceMemoryError | MemoryError):
        return Trouble(kind="device", reason=f"out of memory: {error}")
    if isinstance(error, PeerLostError | ExternalError) or _is_connection_error(error):
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Trouble(kind="peer", reason=reason, peer=error.rank if isinstance(error, PeerLostError) else None)
    if isinstance(error, IgniteError):
        return Trouble(kind="job", reason=str(error), layer=error.layer if isinstance(error, LayerError) else None)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Trouble(kind="job", reason=f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")


def _is_connection_error(error: BaseException) -> bool:
    import torch.distributed as dist

    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | ConnectionError):
        return True
    frames = traceback.extract_tb(
        error.__traceback__
    )  # layers' own errors are wrapped, so what is left here is torch's
    return isinstance(error, RuntimeError) and any("torch/distributed/" in frame.filename for frame in frames)
