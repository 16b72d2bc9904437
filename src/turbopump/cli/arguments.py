"""How the words of a command line are read: what is wrong with them in one line, and values that several
commands take.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from turbopump.cli.ending import ASKED_WRONGLY, one_line


class Parser(argparse.ArgumentParser):
    """One line where argparse prints its usage too. Parsers of actions become of class `ActionParser`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"formatter_class": argparse.RawDescriptionHelpFormatter} | named)

    def error(self, message: str) -> NoReturn:
        self.exit(ASKED_WRONGLY, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def add_subparsers(self, **named: Any) -> Any:
        return super().add_subparsers(**{"parser_class": ActionParser} | named)

    def read(self, words: Sequence[str] | None) -> argparse.Namespace:
        """Options and positional words in any order, where no action or foreign command line follows."""
        words = sys.argv[1:] if words is None else words
        if any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions):
            return self.parse_args(words)
        return self.parse_intermixed_args(words)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(unknown("action", value, action.choices))
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse keeps silent about help that finds no room, which unbuffered output tells at once."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class ActionParser(Parser):
    """Complains about what it does not know itself, so that the line names the right `--help`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown_words = super().parse_known_args(args, namespace)
        if unknown_words:
            self.error(f"unrecognized arguments: {' '.join(unknown_words)}")
        return found, unknown_words


def add_action(
    actions: "argparse._SubParsersAction[Any]", name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    """The parser of one action: `turbopump dlq list`."""
    added: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=sentence(summary),
        epilog=example_text(example),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def sentence(summary: str) -> str:
    """`str.capitalize` would make rocketmq of RocketMQ.

    >>> sentence("jobs on Spark")
    'Jobs on Spark.'
    """
    return f"{summary[:1].upper()}{summary[1:]}."


def example_text(example: str) -> str:
    lines = example.splitlines()
    return "\n".join([f"example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """Names what may have been meant."""
    import difflib

    known = list(known)
    meant = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"perhaps {meant[0]} is meant" if meant else f"there are {', '.join(known)}"
    return f"there is no {kind} {word!r}, {hint}"


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
