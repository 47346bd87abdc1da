"""Makes modules that several kinds of tests share (``tests/*.py``) importable from all of them."""

from hypothesis import settings

settings.register_profile("ignite", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("ignite")
