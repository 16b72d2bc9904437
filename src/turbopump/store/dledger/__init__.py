"""DLedger's log on disk, in `dledger-<id>/` of a store.

    entry_log.py        entries by index: append, read, cut, delete; the commit log that the store reads
    placement.py        where entries of a leader go in the log of a follower
    entry_index.py      where each entry lies: 32 bytes an entry, derived from the data files
    entry_recovery.py   finds the end of the log after a stop or a crash, and completes the index
    committed.py        dispatches committed entries to queues and index
    switch_over.py      ends the commit log of a plain store, behind which entries begin
    message_recovery.py makes queues and index agree with the committed entries
    entry_scan.py       reads data files entry by entry
    entry_walk.py       files and pieces of a log of entries, for tools
    entry_check.py      compares entries with the index and the checkpoint, for tools
    stopped_entries.py  reads the log of a node that is not opened, for tools
    member_comparison.py compares the committed entries of members, for tools
    older_comparison.py the same for the commit logs before their entries
    state_files.py      `currterm` and `checkpoint`: term and vote; how far the log is committed and synced

Elections, and what a majority has, are not known here.
"""
