"""The data plane: trains one job by one plan, a process for each device.

Start with :mod:`ignite_scheduler.engine.gang` (the supervisor's side) or :mod:`ignite_scheduler.engine.executor` (what
one process does with its row of the schedule). Importing this package, :mod:`~ignite_scheduler.engine.specification`,
:mod:`~ignite_scheduler.engine.reports` and :mod:`~ignite_scheduler.engine.gang` does not need torch.
"""
