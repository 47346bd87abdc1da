"""Driver 2, the live one: journal → handle → dispatch, recovery, an asyncio shell, and the ports that it needs.

Start with :mod:`~ignite_scheduler.daemon.pump` (one event at a time, and the way back after a crash) and
:mod:`~ignite_scheduler.daemon.shell` (the loop around it). What a run leaves is told by ``story``, ``view`` and
``report``.
"""
