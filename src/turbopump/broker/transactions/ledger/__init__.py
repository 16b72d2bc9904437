"""The ledger: decides all half messages of a batch together, exactly once, across retries and restarts.

A book belongs to one transactional id and is kept by one broker, its home. Transactions that producers decide
one by one (`broker/transactions`) never belong here.
"""
