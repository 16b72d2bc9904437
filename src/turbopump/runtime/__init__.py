"""What the world gives us: time, disk, network and chance, each behind a small interface.

Everything above receives these; nothing above asks the operating system by itself. The simulation in
`turbopump.testing` implements the same interfaces with a virtual clock and a disk that loses writes.
"""
