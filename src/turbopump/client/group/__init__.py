"""Membership in a consumer group, shared by the push and the pull consumer.

Subscriptions, assignment of queues (`rebalancer.py`, `strategies.py`), committed offsets and where a new
group begins, sending failed messages back, and what a member reports to tools.

What never belongs here: pulling messages and calling handlers; those are `pull/` and `push/`.
"""
