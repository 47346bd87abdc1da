"""Write the generated pages of docs/: the command line, the states of a job, the models of the zoo.

`make docs` runs it; a test holds the committed pages against it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ignite_scheduler.cli.root import VERBS, ignite
from ignite_scheduler.control.states import format_transitions

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py; change it there -->\n\n"


WIDTH = {"terminal_width": 100, "max_content_width": 100}


def command_line() -> str:
    """The page docs/cli.md: the help of every verb and of what is below it, 100 columns wide."""
    parts = [NOTE, "# Command line\n\nEvery page below is the verb's own `--help`.\n"]
    with click.Context(ignite, info_name="ignite", **ignite.context_settings | WIDTH) as context:
        for verb in VERBS:
            command = ignite.get_command(context, verb)
            assert command is not None
            parts.append(_help(command, verb, context, "##"))
    return "".join(parts)


def _help(command: click.Command, name: str, parent: click.Context, mark: str) -> str:
    with click.Context(command, info_name=name, parent=parent, **WIDTH) as context:
        page = f"\n{mark} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        below = command.commands if isinstance(command, click.Group) else {}
        return page + "".join(_help(child, name, context, mark + "#") for name, child in below.items())


def states() -> str:
    """The page docs/states.md: the transition table as a diagram."""
    return (
        f"{NOTE}# States of a job\n\nThe controller moves a job only along these arrows "
        "(`ignite_scheduler.control.states.TRANSITIONS`).\n\n"
        f"```mermaid\n{format_transitions()}\n```\n"
    )


ZOO_HEAD = """# Models of the zoo

Every model is a chain of named layers, built by this package's own code; nothing is downloaded. `ignite profile NAME`
measures one, a job names it as `model: {zoo: NAME, args: {…}}`. Arguments (`--args KEY=VALUE`) change the shape: a
model of the large ones' code with a few narrow layers trains anywhere, and its gradients in a pipeline are tested
against one process for every function of the zoo.

With the same weights they are the same functions as the models of torchvision and transformers, which a test holds them
against.

## Published models

The number of parameters is that of the model as built here, counted each time this page is written. Where a source
gives it to the last one it is the same; where a source rounds (~) it is within 2 %. Tied weights count once.

"""
ZOO_MIDDLE = """
Variants by an argument: `squeezenet` with `version=1.1` has 1,235,496 parameters, `mnasnet` with `width=0.5`, `0.75`
and `1.3` has 2,218,512, 3,170,208 and 6,282,256, a `vgg` with `batch_norm=true` those of torchvision's `_bn`. The
released files of Falcon hold the tied head a second time: `tied=false` gives their 7,217,189,760 and 41,835,970,560.

What differs from the originals: attention weights are not dropped out; GELU is exact in GPT; GPT-3's attention is
dense in every block, its 1.3B has 16 heads and its 13B vectors of 5120 (the paper's own figures for those two do not
go together); Falcon's query, key and value are three maps; BERT has neither pooler nor next-sentence head, and
samples of one segment; BLOOM's attention works out its scores in full, as its own code does.

## Small models

One of each kind, to train here.

"""
ZOO_SIZING = """
## Models too large for this machine

`ignite profile NAME --devices meta` sizes a model in seconds and some 300 MB, whatever its size: parameters, boundary
bytes, kept activations and FLOPs of each layer, forward and backward, by running it on tensors that have shapes and
no data. It takes the kernels of a CPU; for a model that fits, the figures are those of the measured profile, to the
last byte.

- *Kept activations* are what autograd keeps, parameters apart. Attention is the fused one, which keeps no scores,
  except in BLOOM. Kernels of a GPU may keep a little less (an RMS norm on a CPU keeps its scaled input too).
- *FLOPs* are those of matrix products, convolutions and attention, two for a multiply-add. Attention counts in full,
  causal or not, and its first product once more in the backward, where scores are made again.
- What a layer fills *for a moment*, such as fresh gradients, is followed as the tensors come and go; buffers inside of
  kernels are not seen.
- There are *no times*. `ignite plan` takes each device's roofline: see [what the numbers mean](cost_model.md).

## Data sets

Seeded generators and what comes with scikit-learn or Python; `data: {zoo: NAME, args: {…}}` in a job.

"""


def zoo() -> str:
    """The page docs/zoo.md: models with their layers and parameters, as they are built now."""
    from ignite_scheduler.zoo import DATASETS, MODELS

    published = [entry for entry in MODELS.values() if entry.published is not None]
    small = [entry for entry in MODELS.values() if entry.published is None]
    parts = [NOTE, ZOO_HEAD, "| model | layers | parameters | source |\n|---|---:|---:|---|\n"]
    for entry in published:
        layers, parameters = _counted(entry.name)
        stated = entry.published
        rounded = "" if stated.exact else f"~{stated.parameters / 1e9:g} billion: "
        parts.append(f"| `{entry.name}` | {layers} | {parameters:,} | {rounded}{stated.source} |\n")
    parts += [ZOO_MIDDLE, "| model | layers | parameters | what it is | data |\n|---|---:|---:|---|---|\n"]
    for entry in small:
        layers, parameters = _counted(entry.name)
        parts.append(f"| `{entry.name}` | {layers} | {parameters:,} | {entry.description} | `{entry.data.name}` |\n")
    parts += [ZOO_SIZING, "| data set | what it is |\n|---|---|\n"]
    parts += [f"| `{entry.name}` | {entry.description} |\n" for entry in DATASETS.values()]
    return "".join(parts)


def _counted(name: str) -> tuple[int, int]:
    """Layers and parameters of a model of the zoo at its default arguments."""
    from ignite_scheduler.model import Reference
    from ignite_scheduler.zoo import outline

    chain = outline(Reference(zoo=name))
    return len(chain), sum(parameter.numel() for parameter in chain.parameters())


PAGES = {"cli.md": command_line, "states.md": states, "zoo.md": zoo}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
