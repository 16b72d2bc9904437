"""Effects that happen once, and messages that are part of a database transaction.

`idempotent` records which messages a group has processed, in the transaction of their effects. `outbox`
stores messages in the transaction that causes them and relays them until a broker has stored them.
"""
