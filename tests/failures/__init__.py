"""Pairs and groups of real broker processes under real failures, and a count of what was lost.

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

`--pair group` and `--pair group-4.9.7` run three brokers of one DLedger group instead, and decide whether the
histories of their queues are linearizable.

    members.py          three brokers with links between them, and what can be done to them
    callers.py          clients that append and read, and record each call with its two times
    group_scenarios.py  the table of failures
    linear.py           pure: calls of one queue and its messages at the end in, anomalies out
    group_runs.py       one run, and its figures
    group_report.py     the table of figures, and docs/results/failures-groups.md
"""
