"""Pairs of real broker processes under real failures, and a count of what was lost.

    python -m tests.failures --pair ours --minutes 3

A scenario starts a name server, a master and a slave as processes, sends and reads all the time, injects one
kind of failure, and at the end reads what survived. The same scenarios run with pairs of our brokers and of
Apache's 4.9.7 and 5.5.0, with the same configuration, so that the figures can be compared.

    links.py      a TCP proxy before each replication port: cut, frozen, one-way, slow
    disks.py      a small disk that can be filled, and a log that loses what was not synced
    pairs.py      two brokers of one kind, and what can be done to them
    load.py       a producer and a consumer that keep a history
    scenarios.py  the table of failures
    count.py      pure: history and what survived in, figures out
    report.py     the table of figures, and docs/results/failures.md
"""
