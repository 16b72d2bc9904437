"""How the words of a command line are read: what is wrong with them in one line, and values that several
commands take.
"""

import argparse
import sys
from typing import Any, NoReturn

from turbopump.cli.ending import ASKED_WRONGLY, one_line


class Parser(argparse.ArgumentParser):
    """One line where argparse prints its usage too. Parsers of subcommands become of this class as well."""

    def error(self, message: str) -> NoReturn:
        self.exit(ASKED_WRONGLY, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse keeps silent about help that finds no room, which unbuffered output tells at once."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def count(word: str) -> int:
    """How many at most: 0 is none at all."""
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word} is not a number from 0 on")
    return int(word)


def text(word: str) -> str:
    """What brokers keep as text: bytes that are not UTF-8 reach us as lone surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{word!r} is not text in UTF-8") from None
    return word
