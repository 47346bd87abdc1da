"""The decorator of the inner loops: compiled once, kept on disk beside the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from numba import njit

OPTIONS: Final[dict[str, Any]] = {"cache": True, "no_cfunc_wrapper": True}
"""Nothing but Python and other compiled functions calls these: no wrapper for C is compiled."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code; the first call on a machine takes seconds, later processes load it."""
    return cast(Function, njit(**OPTIONS)(function))


def inlined(function: Function) -> Function:
    """``function`` put into its callers: a call would copy the whole record of the family."""
    return cast(Function, njit(**OPTIONS, inline="always")(function))
