"""Tables in HTML, for values that show themselves in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a header; unknown values are dashes, numbers have four digits.

    >>> table(["job", "step_s"], [["a<b", 0.123456]])
    '<table><tr><th>job</th><th>step_s</th></tr><tr><td>a&lt;b</td><td>0.1235</td></tr></table>'
    """
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: object) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))
