"""Broker part that serves reads: pulls, parked pulls, filters, send-backs and non-consuming queries.

`part.py` builds it. How a group's members and committed offsets are kept is in `broker/groups`, how records
are found on disk in `turbopump.store`: neither belongs here.
"""
