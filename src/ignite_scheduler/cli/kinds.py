"""The catalogue of kinds for people and programs: every figure with where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ignite_scheduler.cli.output import number, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ignite_scheduler.formats.catalogue import Evidence, Kind

UNCHECKED: Final = "?"
"""Mark of a figure that nobody looked up."""
_DTYPES: Final = ("fp32", "fp16", "bf16", "fp8")
_UNITS: Final = (
    "16-bit and 8-bit rates are dense, of matrix units where there are any; a processor's memory is its machine's"
)


def chosen(pattern: str | None) -> dict[str, Kind]:
    """Kinds whose name or alias contains ``pattern``, letter case apart; all without one.

    Raises
    ------
    NotFoundError
        There is none; the message names the nearest.
    """
    from ignite_scheduler.errors import NotFoundError
    from ignite_scheduler.formats.catalogue import catalogue, nearest_kinds

    wanted = (pattern or "").lower()
    found = {
        name: kind
        for name, kind in catalogue().items()
        if any(wanted in text.lower() for text in (name, *kind.aliases))
    }
    if not found:
        near = ", ".join(nearest_kinds(pattern or "")) or "none is near; 'ignite devices kinds' lists all"
        raise NotFoundError(f"no kind of device contains {pattern!r}; nearest: {near}")
    return found


def parts(kinds: Mapping[str, Kind], *, wide: bool) -> list[RenderableType]:
    """Tables and notes for people; the wide form names the source of every group of figures."""
    heads = ["kind", "memory", *(f"{dtype} TFLOP/s" for dtype in _DTYPES), "bandwidth", "of peak", "power", "price"]
    shown: list[RenderableType] = [
        table(heads, [_row(kind) for kind in kinds.values()], right="123456789"),
        "",
        f"{UNCHECKED} = from general knowledge or a default of its class, not looked up"
        + ("" if wide else "; -o wide names the sources"),
        _UNITS,
    ]
    if wide:
        numbers = _number_sources(kinds.values())
        columns = ["kind", "memory", "rates", "of peak", "power", "price", "remarks"]
        sources = [f"[{index}] {title}\n    {url}" for (title, url), index in numbers.items()]
        shown += ["", table(columns, [_source_row(kind, numbers) for kind in kinds.values()]), "", "\n".join(sources)]
    return shown


def _row(kind: Kind) -> list[str]:
    from ignite_scheduler.units import format_bandwidth, format_memory

    price = None if kind.price is None else f"{kind.price.rate * 3600:.3g} {kind.price.currency}/h ({kind.price.date})"
    rates = [kind.peak(dtype) for dtype in _DTYPES]
    return [
        kind.name,
        _marked(None if kind.memory is None else format_memory(kind.memory), kind, "memory"),
        *(_marked(None if rate is None else number(rate / 1e12), kind, "compute") for rate in rates),
        _marked(format_bandwidth(kind.memory_bandwidth), kind, "memory"),
        _marked(f"{kind.achievable_flops:.0%}".replace("%", " %"), kind, "achievable"),
        _marked(None if kind.busy_power is None else f"{kind.busy_power:g} W", kind, "power"),
        _marked(price, kind, "price"),
    ]


def _marked(text: str | None, kind: Kind, group: str) -> str:
    if text is None:
        return "–"
    evidence = kind.evidence.get(group)
    return text if evidence is not None and evidence.checked else text + UNCHECKED


def _number_sources(kinds: Iterable[Kind]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for kind in kinds:
        for evidence in kind.evidence.values():
            for source in evidence.sources:
                found.setdefault(source, len(found) + 1)
    return found


def _source_row(kind: Kind, numbers: Mapping[tuple[str, str], int]) -> list[str]:
    def cited(group: str) -> str:
        evidence = kind.evidence.get(group)
        if evidence is None:
            return "–"
        return ", ".join(str(numbers[source]) for source in evidence.sources) or "unchecked"

    notes = [kind.note] + [evidence.note for group, evidence in kind.evidence.items() if group != "achievable"]
    remarks = "; ".join(note for note in notes if note)
    return [kind.name, *map(cited, ("memory", "compute", "achievable", "power", "price")), remarks]


def document(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The kinds for programs: figures in SI units, and the evidence of each group."""
    return {"schema": "ignite/kinds/v1", "kinds": {name: _entry(kind) for name, kind in kinds.items()}}


def _entry(kind: Kind) -> dict[str, Any]:
    price = kind.price
    return {
        "maker": kind.maker,
        "class": kind.group,
        "memory_bytes": kind.memory,
        "memory_bandwidth_bytes_per_s": kind.memory_bandwidth,
        "dtypes": sorted(kind.dtypes),
        "peak_flops_per_s": dict(kind.peak_flops),
        "achievable_flops": kind.achievable_flops,
        "achievable_bandwidth": kind.achievable_bandwidth,
        "launch_overhead_s": kind.launch_overhead,
        "host_bandwidth_bytes_per_s": kind.host_bandwidth,
        "busy_power_w": kind.busy_power,
        "idle_power_w": kind.idle_power,
        "price": price and {"per_hour": price.rate * 3600, "currency": price.currency, "date": price.date},
        "aliases": list(kind.aliases),
        "note": kind.note,
        "evidence": {group: _evidence(evidence) for group, evidence in kind.evidence.items()},
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    sources = [{"title": title, "url": url} for title, url in evidence.sources]
    return {"checked": evidence.checked, "sources": sources, "note": evidence.note}
