"""DLedger's log on disk, in `dledger-<id>/` of a store.

entry_log.py        entries by index: append, read, cut, delete; the commit log that the store reads
entry_index.py      where each entry lies: 32 bytes an entry, derived from the data files
entry_recovery.py   finds the end of the log after a stop or a crash, and completes the index
entry_scan.py       reads data files entry by entry
state_files.py      `currterm` and `checkpoint`: term and vote; how far the log is committed and synced
"""
