"""Everything a producer does: checks, prepares and sends messages, batches, requests and transactions.

`producer.py` is what users call; `sender.py` makes the tries of one send; `packer.py` turns messages into
`PreparedSend`s, which `batches.py` and `auto_batch.py` make of several messages. `broker_health.py` and
`broker_probe.py` know which brokers to avoid, `send_limits.py` bounds what is in flight. `transaction.py`,
`request_reply.py`, `recalls.py` and `ledger.py` are kinds of sends of their own.

What never belongs here: reading messages, rebalancing, and anything that knows a handler of a consumer.
"""
