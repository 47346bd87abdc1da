"""The decorator of the inner loops: compiled once, kept on disk beside the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` as machine code; the first call on a machine takes seconds, later processes load it."""
    return cast(Function, njit(cache=True)(function))


def inlined(function: Function) -> Function:
    """``function`` put into its callers: a call would copy the whole record of the family."""
    return cast(Function, njit(cache=True, inline="always")(function))
