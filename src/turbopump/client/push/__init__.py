"""The push consumer: calls the user's handlers with the messages of its topics.

`consumer.py` is what users call. `member.py` wires a running consumer: `assigned_queues.py` knows the queues
of this member, `pull_loop.py` reads them into a `ProcessQueue`, `handlers.py` is the user's function as it is
called, `concurrent.py` and `ordered.py` deliver to it with the workers of `workers.py`, and `locks.py` has
the broker's locks of ordered queues.

What never belongs here: sending (failed messages go back through `group/send_back.py`), and polls.
"""
