"""Time, disk, network and chance, each behind a small interface; owned tasks and rate-limited logs.

Everything above receives the interfaces; nothing above calls the operating system itself. The simulation in
`turbopump.testing` implements them with a virtual clock and a disk that loses writes.
"""
