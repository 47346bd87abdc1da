"""Kinds of device that a cluster file may name without saying more, read from ``devices.json`` beside this module.

Every figure stands in a group (memory, compute, achievable, host, power, price) that says where it was looked up. A
group without a source is from general knowledge or a default of its class: it is marked as unchecked wherever it is
shown.
Rates are dense (without structured sparsity). Memory counts a sheet's GB as 10⁹ bytes, which is never more than the
device has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ignite_scheduler.formats.shapes.devices import DevicesShape, KindShape

FILE: Final = "devices.json"

RESERVE_SHARE: Final = 0.05
"""Share of a catalogue kind's memory left to driver, context and fragmentation."""
MIN_RESERVE: Final = 512 * 2.0**20
"""Least reserve on a GPU, in bytes."""

HOST_SHARE: Final = 0.8
"""Share of the rate of a link to the host that copies of pinned memory reach. NVIDIA's bandwidthTest shows 9.6 to 11.4
GB/s for T4 and V100, whose PCIe 3.0 gives 15.75 GB/s, on a rented machine (github.com/router-gao/cuda-demo,
02-cuda-bandwidth.md); packet headers alone leave about 85 %."""

GROUPS: Final = ("memory", "compute", "achievable", "host", "power", "price")
"""What a kind's figures are grouped by: each group has its own evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a group of figures comes from: titles and addresses of what was looked up; none = unchecked."""

    sources: tuple[tuple[str, str], ...] = ()
    note: str | None = None

    @property
    def checked(self) -> bool:
        """Whether the figures were compared with a source."""
        return bool(self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An indicative price: money per second of one device, the currency, and of which year (or year and month)."""

    rate: float
    currency: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of device: bytes, bytes/s of its memory, peak FLOP/s by dtype, watts.

    ``memory`` is None where it is not the kind's but the machine's (processors). ``achievable_flops`` and
    ``achievable_bandwidth`` are the shares of the peaks that are really reached, ``launch_overhead`` the seconds that
    each pass over a layer takes beside them. ``host_bandwidth`` is what copies to the host's memory reach each way,
    None where that is not known or there is no memory apart. ``aliases`` are other names of it, drivers' names above
    all. Powers and price are None where they are not public.
    """

    name: str
    maker: str
    group: str
    memory: float | None
    memory_bandwidth: float
    dtypes: frozenset[str]
    peak_flops: tuple[tuple[str, float], ...]
    achievable_flops: float
    achievable_bandwidth: float
    launch_overhead: float
    host_bandwidth: float | None
    busy_power: float | None
    idle_power: float | None
    price: Price | None
    aliases: tuple[str, ...]
    note: str | None
    evidence: Mapping[str, Evidence]

    def peak(self, dtype: str) -> float | None:
        """Peak FLOP/s in ``dtype``, None where it has none."""
        return dict(self.peak_flops).get(dtype)


@cache
def catalogue() -> Mapping[str, Kind]:
    """All kinds by name, read and checked at the first call.

    Raises
    ------
    DocumentError
        The file that ships with the package was changed and is wrong now.
    """
    from importlib import resources

    from ignite_scheduler.formats.shapes.check import check
    from ignite_scheduler.formats.shapes.devices import DevicesShape
    from ignite_scheduler.formats.source import read_source

    with resources.as_file(resources.files("ignite_scheduler.formats") / FILE) as path:
        source = read_source(path)
    shape = check(DevicesShape, source)
    return MappingProxyType({name: _kind(name, entry, shape) for name, entry in shape.kinds.items()})


def _kind(name: str, entry: KindShape, shape: DevicesShape) -> Kind:
    group = shape.classes[entry.group]
    achievable = entry.achievable
    peaks = entry.compute.flops_per_s
    return Kind(
        name=name,
        maker=entry.maker,
        group=entry.group,
        memory=entry.memory.memory_bytes,
        memory_bandwidth=entry.memory.bandwidth_bytes_per_s,
        dtypes=frozenset(peaks),
        peak_flops=tuple(sorted(peaks.items())),
        achievable_flops=achievable.flops if achievable else group.achievable_flops,
        achievable_bandwidth=group.achievable_bandwidth,
        launch_overhead=group.launch_overhead_s,
        host_bandwidth=entry.host.bandwidth_bytes_per_s * HOST_SHARE if entry.host else None,
        busy_power=entry.power.busy_w if entry.power else None,
        idle_power=entry.power.idle_w if entry.power else None,
        price=_price(entry),
        aliases=tuple(entry.aliases),
        note=entry.note,
        evidence=MappingProxyType(_evidence(entry, shape)),
    )


def _price(entry: KindShape) -> Price | None:
    price = entry.price
    return None if price is None else Price(rate=price.per_hour / 3600, currency=price.currency, date=price.date)


def _evidence(entry: KindShape, shape: DevicesShape) -> dict[str, Evidence]:
    found: dict[str, Evidence] = {}
    for name in GROUPS:
        group: Any = getattr(entry, name)
        if group is not None:
            texts = tuple((shape.sources[key].title, shape.sources[key].url) for key in group.source or ())
            found[name] = Evidence(sources=texts, note=group.note)
    if "achievable" not in found:
        found["achievable"] = Evidence(note=f"default of the class {entry.group}: {shape.classes[entry.group].note}")
    return found


def default_reserve(memory: float) -> float:
    """Bytes kept free on a device whose memory the cluster file does not give."""
    return max(RESERVE_SHARE * memory, MIN_RESERVE)


def nearest_kinds(name: str, known: Iterable[str] | None = None) -> tuple[str, ...]:
    """Up to three kinds whose names resemble ``name`` most, the nearest first; letter case and signs do not count.

    ``known`` are the names to choose from; None = the catalogue's, aliases included (the kinds that they stand for).
    """
    import difflib

    kinds = catalogue()
    names = {_plain(kind): kind for kind in (kinds if known is None else known)}
    if known is None:
        names |= {_plain(alias): kind.name for kind in kinds.values() for alias in kind.aliases}
    wanted = _plain(name)
    inside = [plain for plain in names if wanted and (wanted in plain or plain in wanted)]
    near = sorted(inside, key=lambda plain: abs(len(plain) - len(wanted)))
    near += difflib.get_close_matches(wanted, names, n=6, cutoff=0.6)
    return tuple(dict.fromkeys(names[plain] for plain in near))[:3]


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())
