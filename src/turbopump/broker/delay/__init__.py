"""Holds messages back until they are due: delay levels (`levels.py`) and timers with a time of their own.

Both kinds wait in system topics of the commit log, are delivered as copies, and survive crashes because each
copy names its original. How a send is checked and answered (`broker/produce`) never belongs here.
"""
