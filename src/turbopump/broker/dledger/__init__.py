"""The broker as a member of a DLedger group: its role, when it answers, tables as records of the log.

Elections and copies are those of `replication/dledger`; how a member is told what to serve is `server.py`'s.
"""
