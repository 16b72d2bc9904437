"""Runs actions of `turbopump transactions` beside a client that a test has."""

import argparse

from turbopump.cli import transactions
from turbopump.client.admin import Admin


async def run(admin: Admin, *words: str) -> int:
    parser = argparse.ArgumentParser()
    transactions.add_arguments(parser)
    return await transactions.carry_out(parser.parse_args(words), admin)
