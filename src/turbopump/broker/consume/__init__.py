"""Reading messages: pulls, parked pulls, filters, send-backs, and queries that do not consume.

`part.py` builds it. How a group's members and committed offsets are kept is in `broker/groups`, how records
are found on disk in `turbopump.store`: neither belongs here.
"""
