"""Public tables of links → the ``links:`` section of a cluster file: DT-FM's delays and bandwidths between regions.

References
----------
B. Yuan et al., "Decentralized training of foundation models in heterogeneous environments", NeurIPS 2022 (the table).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ignite_scheduler.errors import DocumentError
from ignite_scheduler.formats.foreign.common import Found, Notes
from ignite_scheduler.formats.foreign.refused import is_routes
from ignite_scheduler.formats.foreign.registry import look_at, refusal
from ignite_scheduler.formats.foreign.shapes import Route
from ignite_scheduler.formats.shapes.check import checked


def import_links(path: str | Path) -> tuple[dict[str, Any], Notes]:
    """The ``links`` of a cluster file whose nodes are the file's regions, and what was assumed.

    Raises
    ------
    NotFoundError
        There is no such file.
    DocumentError
        The file holds no table of links that we know, or a wrong one.
    """
    found = look_at(path)
    if not is_routes(found) or found.source is None:
        raise refusal(found, "no table of links that can be imported (DT-FM's regions can)")
    return _links(found)


def _links(found: Found) -> tuple[dict[str, Any], Notes]:
    assert found.source is not None
    routes = checked(TypeAdapter(list[Route]).validate_python, found.source)
    notes, pairs, seen = Notes(), [], set()
    for index, route in enumerate(routes):
        ends = frozenset((node_name(route.a), node_name(route.b)))
        if len(ends) == 1 or ends in seen:
            raise found.source.error(
                (index,), f"the link between {route.a!r} and {route.b!r} is given twice or is none"
            )
        seen.add(ends)
        pairs.append(
            {
                "between": [node_name(route.a), node_name(route.b)],
                "bandwidth": f"{_short(route.gigabits)}Gbit/s",
                "latency": f"{_short(route.delay)}ms",
            }
        )
    if not pairs:
        raise DocumentError("expected at least one link, found none", file=found.file)
    nodes = sorted(set().union(*seen))
    notes.assume(f"regions are nodes: {', '.join(nodes)}")
    notes.assume("delay_ms is the latency one way; bandwidth is that of one pair, the same both ways")
    notes.warn("links within a region are not in the file: add pairs '{within: NODE, …}' or a default")
    return {"links": {"pairs": pairs}}, notes


def node_name(region: str) -> str:
    """A region's name as a node's, which has no blanks and no slashes."""
    return region.strip().replace(" ", "-").replace("/", "-")


def _short(value: float) -> str:
    return repr(value).removesuffix(".0")
