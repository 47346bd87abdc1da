"""What an operator may set of the controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator may set.

    Parameters
    ----------
    max_attempts
        Attempts that may fail by the job's own fault before the job has failed.
    max_device_faults
        Gangs in a row that may fail by a device's fault before the device is taken out of service.
    round_interval
        Least seconds between two rounds of decisions; 0 = at each instant at which something changed.
    start_grace
        Seconds after a start or stop command during which a listing need not agree.
    missing_grace
        Seconds for which a running gang must be missing from listings before it is taken as ended (its own answer may
        be on the way).
    promises
        Foretell start and finish of each job when it is admitted; costs a simulation of the whole queue each time.
    story_length
        Events kept to be told when a law breaks.
    """

    max_attempts: int = 3
    max_device_faults: int = 3
    round_interval: float = 0.0
    start_grace: float = 60.0
    missing_grace: float = 5.0
    promises: bool = False
    story_length: int = 500
