"""Keeps messages until they are due: those with a delay level, and timers with a delivery time of their own.

Both kinds wait in system topics of the commit log, are delivered as copies, and survive crashes because each
copy names its original. How a send is checked and answered (`broker/produce`) never belongs here.
"""
