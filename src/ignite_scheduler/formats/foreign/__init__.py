"""Public profiles of other planners ↔ ours: one module a format, one registry that knows them by content."""

from ignite_scheduler.formats.foreign.common import Choices, ForeignFormat, Imported
from ignite_scheduler.formats.foreign.exporting import Exported
from ignite_scheduler.formats.foreign.graph_text import load_graph_text
from ignite_scheduler.formats.foreign.links import import_links
from ignite_scheduler.formats.foreign.registry import ALIASES, EXPORTERS, FORMATS, export_profile, import_profile

__all__ = [
    "ALIASES",
    "EXPORTERS",
    "FORMATS",
    "Choices",
    "Exported",
    "ForeignFormat",
    "Imported",
    "export_profile",
    "import_links",
    "import_profile",
    "load_graph_text",
]
