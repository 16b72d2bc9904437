"""Prints in how many of some seeds 3PC splits or blocks, by variant and fault."""

import argparse

from tests.simulation.globals.three_phase import VARIANTS, Fault, counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="transactions for each line")
    seeds = range(parser.parse_args().seeds)
    for variant in VARIANTS:
        for fault in Fault:
            split, blocked = counted(variant, fault, seeds)
            print(f"{variant:45} {fault:18} {split:4} split {blocked:4} blocked")


if __name__ == "__main__":
    main()
