"""Consumer groups: their configuration, members, committed offsets, queue locks, resets and assignment.

`part.py` builds it. Reading messages for a group is in `broker/consume`, what tools are shown about groups in
`broker/admin`: neither belongs here.
"""
