"""Simulations from one seed: random work, faults and crashes, with guarantees checked throughout.

python -m tests.simulation --seeds 1000                      runs many seeds, prints those that fail
python -m tests.simulation --world delays --seeds 1000       simulates delayed messages and retries
python -m tests.simulation --world groups --seed 17 -v        repeats one seed and prints its events
"""
