"""Documents with a wrong value somewhere."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 1e308])


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a document: the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place] + [found for key, part in inner for found in places(part, (*place, key))]


def spoilt(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with that value at that place."""
    if not place:
        return value
    result = copy.deepcopy(document)
    inner = result
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return result
