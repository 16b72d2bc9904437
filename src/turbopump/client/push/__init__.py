"""The engine of the push consumer: what runs between `Consumer.start` and `Consumer.close`.

`engine.py` wires the rest: `queues.py` knows which queues are ours, `pulling.py` reads them, `handlers.py` is
the user's function as we call it, `concurrent.py` and `ordered.py` deliver to it with the workers of
`workers.py`, and `locks.py` has the broker's locks of ordered queues.
"""
