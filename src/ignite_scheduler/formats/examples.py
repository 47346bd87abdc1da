"""The commented example documents that ``ignite init`` writes."""

from __future__ import annotations

from importlib import resources


def example_files() -> dict[str, str]:
    """File name → text of each example, in the order of their names."""
    folder = resources.files("ignite_scheduler").joinpath("cli", "examples")
    files = [entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith((".", "__"))]
    return {entry.name: entry.read_text(encoding="utf-8") for entry in sorted(files, key=lambda entry: entry.name)}
