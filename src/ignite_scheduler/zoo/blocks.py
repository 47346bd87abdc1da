"""Which modules of a model are blocks, that is, parts that are never cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Modules by path.

    Attributes
    ----------
    blocks
        Never cut: they run as they are.
    containers
        Whose children are looked at one by one.
    items
        Containers that stand in a list among their like (a stage of a network in stages, say).
    """

    blocks: Mapping[str, nn.Module]
    containers: Mapping[str, nn.Module]
    items: frozenset[str]


def find_blocks(model: nn.Module) -> Blocks:
    """The blocks of a model.

    A container is the model itself, a list of modules, and any module that holds a list of composite modules, as a
    decoder holds its layers; every other child of a container is a block.
    """
    blocks: dict[str, nn.Module] = {}
    containers: dict[str, nn.Module] = {"": model}
    items = set()
    seen = {id(model)}

    def visit(path: str, module: nn.Module) -> None:
        for name, child in module._modules.items():
            if child is None or id(child) in seen:
                continue
            seen.add(id(child))
            inner = f"{path}.{name}" if path else name
            if _is_plain_list(child) or _holds_blocks(child):
                containers[inner] = child
                if isinstance(module, _LISTS):
                    items.add(inner)
                visit(inner, child)
            else:
                blocks[inner] = child

    visit("", model)
    return Blocks(blocks=blocks, containers=containers, items=frozenset(items))


def _is_plain_list(module: nn.Module) -> bool:
    """Whether all that it does is to hold its children, or to run them in turn."""
    own = type(module).forward
    plain = own is nn.Sequential.forward or own is nn.Module.forward
    return isinstance(module, _LISTS) and plain and len(module) > 0


def _holds_blocks(module: nn.Module) -> bool:
    return any(isinstance(part, _LISTS) and _is_list_of_blocks(part) for part in module.modules())


def _is_list_of_blocks(module: nn.Module) -> bool:
    children = [child for child in module._modules.values() if child is not None]
    return bool(children) and all(any(True for _ in child.children()) for child in children)
