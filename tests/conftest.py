"""Makes modules that several kinds of tests share (``tests/*.py``) importable from all of them."""
