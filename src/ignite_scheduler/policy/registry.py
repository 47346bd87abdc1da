"""Policies by name. Adding one is a file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ignite_scheduler.errors import InputError
from ignite_scheduler.policy.backfill import Backfill
from ignite_scheduler.policy.fifo import Fifo
from ignite_scheduler.policy.ignite import Ignite
from ignite_scheduler.policy.view import Policy

POLICIES: Final[Mapping[str, Callable[[], Policy]]] = MappingProxyType(
    {
        "backfill": Backfill,
        "fifo": Fifo,
        "ignite": Ignite,
    }
)

DEFAULT_POLICY: Final = "ignite"


def make_policy(name: str) -> Policy:
    """The policy of that name with its default settings.

    Raises
    ------
    InputError
        No policy has the name; the message lists the names there are.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"no policy {name!r}; {hint}there are: {', '.join(sorted(POLICIES))}") from None
