"""Where gangs run: processes of this machine. Importing this package does not need torch; starting a gang does."""

from ignite_scheduler.executors.process import ProcessExecutor, Vitals, load_engine, notices

__all__ = ["ProcessExecutor", "Vitals", "load_engine", "notices"]
