"""Ranks on several machines: each is started by hand (or torchrun) with the same address to meet at."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ignite_scheduler.errors import ConflictError, ExternalError, InputError
from ignite_scheduler.profiler.links.nouns import Endpoint, LinksMeasured, Options, Seat

_ADDRESS_OF: Final = 0x8915
"""``SIOCGIFADDR`` of Linux."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where ``world`` ranks meet: rank 0 listens at ``host:port``, on that address only."""

    host: str
    port: int
    rank: int
    world: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or self.world < 2:
            raise InputError(
                f"expected a rank below the number of ranks, at least 2; found {self.rank} of {self.world}"
            )
        if not 0 < self.port < 65536:
            raise InputError(f"expected a port from 1 to 65535, found {self.port}")

    @classmethod
    def parse(cls, address: str, rank: int, world: int) -> Meeting:
        """The meeting at ``HOST:PORT``; a port alone means the loopback interface."""
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise InputError(f"expected where to meet as HOST:PORT, such as 10.0.0.1:29500, found {address!r}")
        return cls(host=host.strip("[]") or "127.0.0.1", port=int(port), rank=rank, world=world)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Meeting | None:
        """The meeting that torchrun tells in the environment; None outside of it.

        Its own store is at MASTER_PORT already, so ours is one port further.
        """
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        if not all(environment.get(name) for name in names):
            return None
        host, *numbers = (environment[name] for name in names)
        if not all(number.isdigit() for number in numbers):
            raise InputError(f"expected numbers in {', '.join(names[1:])}, found {', '.join(numbers)}")
        port, rank, world = map(int, numbers)
        return cls(host=host, port=port + 1, rank=rank, world=world)


def measure_joined(
    meeting: Meeting,
    endpoint: Endpoint,
    options: Options,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> LinksMeasured:
    """The real links between all ranks of the meeting; every rank returns the same.

    Raises
    ------
    ExternalError
        The others did not come, or were lost.
    ConflictError
        Somebody else has this rank or this device.
    """
    from ignite_scheduler.engine.processes import wake_in_time
    from ignite_scheduler.profiler.links.analysis import ordered_pairs
    from ignite_scheduler.profiler.links.crew import run_rank

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # a peer that is late is told in one line, by us
    wake_in_time()
    _bind(meeting.host)
    store = _store(meeting, options.timeout)
    if store.add(f"rank/{meeting.rank}", 1) > 1:
        raise ConflictError(f"rank {meeting.rank} has joined already: give each process a rank of its own")
    endpoints = _endpoints(store, meeting, endpoint, options)
    pairs = tuple(ordered_pairs(meeting.world))
    seat = Seat(rank=meeting.rank, endpoints=endpoints, pairs=pairs, links={})
    measured = run_rank(seat, options, store, progress)
    _part(store, meeting, options.timeout)
    return measured


def _store(meeting: Meeting, timeout: float) -> Any:
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=timeout)
    try:
        if meeting.rank == 0:
            listener = _listen(meeting)
            server = TCPStore(
                meeting.host, meeting.port, is_master=True, wait_for_workers=False, timeout=limit,
                master_listen_fd=listener.detach(),
            )  # fmt: skip
            return PrefixStore("links", server)
        return PrefixStore("links", TCPStore(meeting.host, meeting.port, is_master=False, timeout=limit))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ExternalError(
            f"rank {meeting.rank} did not reach rank 0 at {meeting.host}:{meeting.port} in {timeout:g} s ({reason})",
            retryable=True,
        ) from error


def _listen(meeting: Meeting) -> socket.socket:
    """A socket on the named address only: left to itself the store would listen on every interface."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(meeting.host, meeting.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise ExternalError(f"cannot listen at {meeting.host}:{meeting.port}: {error.strerror or error}") from error
    return listener


def _endpoints(store: Any, meeting: Meeting, own: Endpoint, options: Options) -> tuple[Endpoint, ...]:
    """Who sits where; every rank says so in the store."""
    import json

    store.set(f"seat/{meeting.rank}", json.dumps([own.device, own.node, own.place, meeting.world, list(options.sizes)]))
    found = []
    for rank in range(meeting.world):
        try:
            store.wait([f"seat/{rank}"], timedelta(seconds=options.timeout))
        except RuntimeError as error:
            raise ExternalError(f"rank {rank} of {meeting.world} did not come within {options.timeout:g} s") from error
        device, node, place, world, sizes = json.loads(store.get(f"seat/{rank}"))
        if (world, sizes) != (meeting.world, list(options.sizes)):
            raise InputError(f"rank {rank} was started with another --world or other sizes: start all ranks alike")
        found.append(Endpoint(device=str(device), node=str(node), place=str(place)))
    names = [endpoint.device for endpoint in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConflictError(f"two ranks stand for the device {twice!r}: give each its own with --device")
    return tuple(found)


def _part(store: Any, meeting: Meeting, timeout: float) -> None:
    """Let rank 0, which holds the store, leave last."""
    if store.add("parted", 1) == meeting.world:
        store.set("parted/all", "1")
    if meeting.rank == 0:
        store.wait(["parted/all"], timedelta(seconds=timeout))


def _bind(host: str) -> None:
    """Let gloo talk over the interface that leads to ``host``: loopback stays loopback, and no other is opened."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing; the system picks the way
            own = probe.getsockname()[0]
    except OSError:
        return
    for _, name in socket.if_nameindex():
        if _address(name) == own:
            os.environ["GLOO_SOCKET_IFNAME"] = name
            return


def _address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _ADDRESS_OF, request)[20:24])
        except OSError:
            return None
