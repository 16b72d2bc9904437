"""Transactions: half messages wait until their producer, or a ledger, commits them or rolls them back.

`halves.py` is the state machine, `checks.py` asks producers, `ledger/` holds the decisions of jobs that write
in batches. Consumers never see anything here: a committed message goes to its topic as a new record.
"""
