"""Transactions over several databases, services and brokers: XA, three-phase commit, TCC and SAGA.

The client that opens one is the transaction manager (TM), a broker of Turbopump is the coordinator (TC):
it keeps the history and decides once. What is done at the participants (RM) is decided by pure state
machines and carried out by `coordinator.py`.
"""
