"""Worlds of one seed: work, faults and crashes by chance, promises checked all along.

python -m tests.simulation --seeds 1000                      runs many, prints those that fail
python -m tests.simulation --world delays --seeds 1000       the same for delayed messages and retries
python -m tests.simulation --world groups --seed 17 -v        runs one again and tells what happens in it
"""
