"""Public profiles of other planners ↔ ours: one module a format, one registry that knows them by content."""

from ignite_scheduler.formats.foreign.common import Choices, ForeignFormat, Imported
from ignite_scheduler.formats.foreign.graph_text import load_graph_text
from ignite_scheduler.formats.foreign.links import import_links
from ignite_scheduler.formats.foreign.registry import ALIASES, FORMATS, import_profile

__all__ = [
    "ALIASES",
    "FORMATS",
    "Choices",
    "ForeignFormat",
    "Imported",
    "import_links",
    "import_profile",
    "load_graph_text",
]
