"""Parsers of command lines with errors in one line, and types of values that several commands share."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from turbopump.cli.exits import USAGE_ERROR, one_line


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line, without usage. Actions get an `ActionParser`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"formatter_class": argparse.RawDescriptionHelpFormatter} | named)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def add_subparsers(self, **named: Any) -> Any:
        return super().add_subparsers(**{"parser_class": ActionParser} | named)

    def read(self, words: Sequence[str] | None) -> argparse.Namespace:
        """Parses options and positional words in any order, unless an action or mqadmin command follows."""
        words = sys.argv[1:] if words is None else words
        if any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions):
            return self.parse_args(words)
        return self.parse_intermixed_args(words)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(unknown("action", value, action.choices))
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints a message; raises if stdout cannot be written, which argparse would ignore."""
        if file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class ActionParser(Parser):
    """Parser of an action; reports unknown arguments itself, so that the line names the right `--help`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown_words = super().parse_known_args(args, namespace)
        if unknown_words:
            self.error(f"unrecognized arguments: {' '.join(unknown_words)}")
        return found, unknown_words


def add_action(
    actions: "argparse._SubParsersAction[Any]", name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    """Adds and returns the parser of one action: `turbopump dlq list`."""
    added: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=sentence(summary),
        epilog=example_text(example),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def sentence(summary: str) -> str:
    """Returns a summary as a sentence; `str.capitalize` would turn RocketMQ into rocketmq.

    >>> sentence("jobs on Spark")
    'Jobs on Spark.'
    """
    return f"{summary[:1].upper()}{summary[1:]}."


def example_text(example: str) -> str:
    lines = example.splitlines()
    return "\n".join([f"example{'s' if len(lines) > 1 else ''}:", *(f"  {line}" for line in lines)])


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """Returns an error text for an unknown word, with the nearest known one or all of them."""
    import difflib

    known = list(known)
    meant = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"did you mean {meant[0]}?" if meant else f"choose from {', '.join(known)}"
    return f"there is no {kind} {word!r} ({hint})"


def count(word: str) -> int:
    """Reads a number of items, 0 or more, for argparse."""
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, got {word!r}")
    return int(word)


def text(word: str) -> str:
    """Reads text for argparse; refuses lone surrogates, which are bytes that are not UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"must be text in UTF-8, got {word!r}") from None
    return word
