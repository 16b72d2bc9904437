"""Counts and traces of a source tree, for `scripts/walks.py`."""
