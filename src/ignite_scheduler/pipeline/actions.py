"""The unit of a schedule: one pass of one microbatch through one stage."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ignite_scheduler.errors import ScheduleError

FORWARD: Final = "F"
BACKWARD: Final = "B"
INPUT_BACKWARD: Final = "I"
WEIGHT_BACKWARD: Final = "W"

_TEXT: Final = re.compile(r"(\d+)([FBIW])(\d+)")


class Action(NamedTuple):
    """One pass of one microbatch through one stage.

    ``kind`` is ``F`` (forward), ``B`` (whole backward), ``I`` (backward for the input: what the stage before waits
    for) or ``W`` (backward for the weights: what nobody waits for). Sends and receives follow from these and are not
    written down. The text form is that of ``torch.distributed.pipelining``.

    >>> str(Action(2, "F", 0)), Action.parse("2F0") == Action(2, "F", 0)
    ('2F0', True)
    """

    stage_index: int
    kind: str
    microbatch_index: int

    def __str__(self) -> str:
        return f"{self.stage_index}{self.kind}{self.microbatch_index}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action that ``text`` names; ScheduleError if it names none."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ScheduleError(f"expected an action such as '2F0' (stage, one of F B I W, microbatch), found {text!r}")
        stage_index, kind, microbatch_index = match.groups()
        return cls(int(stage_index), kind, int(microbatch_index))
