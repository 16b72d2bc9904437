"""Blocking faces of the clients. All but `face.py`, `running.py` and `reading.py` is written by
scripts/faces.py from the async classes, which do the work; these wait for them.
"""
