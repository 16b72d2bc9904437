"""The page about rights says what the table of needs says."""

import re
from pathlib import Path

from tests.unit.auth.requests_kit import handlers, name_of, request_of

from turbopump.auth.needs import OF_STORED, needs_of
from turbopump.protocol.codes import RequestCode as Code

PAGE = Path(__file__).parents[3] / "docs" / "rights.md"
OF_USERS = {*range(50, 55), *range(Code.AUTH_CREATE_USER, Code.AUTH_LIST_ACL + 1), int(Code.AUTH_EXPLAIN)}


def _listed() -> dict[int, tuple[str, str, str]]:
    """Returns needs, name and mark of each request on the page, by its code."""
    found = {}
    for line in PAGE.read_text().splitlines():
        needs, _, requests = line.strip("| ").partition(" | ")
        for name, code, mark in re.findall(r"([A-Z_0-9]+) \((\d+)\)(\*?)", requests):
            found[int(code)] = needs, name, mark
    return found


def _in_words(code: int) -> str:
    text = ", ".join(str(need) for need in needs_of(request_of(code), "C"))
    for name, words in (("Topic:T", "the topic"), ("Group:G", "the group"), ("Cluster:C", "the cluster")):
        text = text.replace(name, words)
    return text.replace("/", " or ")


def test_the_page_has_every_request_that_a_handler_serves() -> None:
    assert _listed().keys() == {int(code) for _, table in handlers() for code in table} | OF_USERS


def test_the_page_says_what_each_request_needs() -> None:
    expected = {
        code: (_in_words(code), name_of(code), "*" if code in OF_STORED else "") for code in _listed()
    }
    assert _listed() == expected
