"""The store in a world of one seed: appends, faults and crashes by chance, promises checked after each start.

python -m tests.simulation --seeds 1000       runs many, prints those that fail
python -m tests.simulation --seed 17 -v       runs one again and tells what happens in it
"""
