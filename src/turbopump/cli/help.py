"""`turbopump help COMMAND`: prints the help of a command, as `turbopump COMMAND --help`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="COMMAND", nargs="*", help="a command, or a command and its action: dlq resend"
    )


def run(options: argparse.Namespace) -> int:
    from turbopump.cli.admin import mqadmin
    from turbopump.cli.main import main

    if options.words[:1] == ["admin"]:
        return mqadmin(["help", *options.words[1:]])
    return main([*options.words, "--help"])
