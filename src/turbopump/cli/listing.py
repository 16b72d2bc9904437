"""Prints the lists of `dlq`, `timers` and `transactions`: a table for people, or one JSON document."""

from collections.abc import Iterable, Mapping

from turbopump.admin.render import cut_line, json_text


def print_table(form: str, headings: tuple[str, ...], rows: Iterable[str], cut: str = "") -> int:
    """Prints headings and rows, and `cut` if the list is truncated. Returns the exit status."""
    print(form % headings)
    for row in rows:
        print(row)
    if cut:
        print(cut_line(cut))
    return 0


def print_document(document: Mapping[str, object], cut: str = "") -> int:
    """Prints one JSON document, with the key `cut` if the list is truncated. Returns the exit status."""
    print(json_text({**document, "cut": cut} if cut else document))
    return 0
