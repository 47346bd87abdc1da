"""Where gangs run: processes of this machine. Importing this package does not need torch; starting a gang does."""

from ignite_scheduler.executors.places import check_playable
from ignite_scheduler.executors.process import ProcessExecutor, load_engine

__all__ = ["ProcessExecutor", "check_playable", "load_engine"]
