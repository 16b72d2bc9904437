"""Shows values in a shell and in a notebook: short, as tables, with everything escaped.

In: structs, dataclasses, mappings, sequences. Out: text. Long values are cut, with the number of items.
Fields that a class names in `HIDDEN` are left out: secrets.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from html import escape
from itertools import islice

import msgspec

MAX_ITEMS = 20
"""Items shown of a list or a mapping; the rest is counted."""
MAX_DEPTH = 3
"""Levels of tables within tables; deeper values are shown as text."""
LEFT = "style='text-align:left'"


def short_repr(value: object) -> str:
    """Returns a repr with the fields that differ from their defaults; long lists and mappings are cut.

    >>> short_repr(list(range(100)))[-29:]
    '17, 18, 19, … 80 more of 100]'
    """
    fields = _fields(value)
    if fields is not None:
        given = ", ".join(f"{name}={short_repr(part)}" for name, part in fields)
        return f"{type(value).__name__}({given})"
    if isinstance(value, Mapping):
        items = (f"{short_repr(key)}: {short_repr(part)}" for key, part in value.items())
        return "{" + ", ".join(_cut(items, len(value))) + "}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        begin, end = ("[", "]") if isinstance(value, list) else ("(", ",)" if len(value) == 1 else ")")
        return begin + ", ".join(_cut(map(short_repr, value), len(value))) + end
    return repr(value)


def html_of(value: object) -> str:
    """Returns a struct, dataclass, mapping or sequence as an HTML table; other values as escaped text."""
    return _html(value, MAX_DEPTH)


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Returns a small HTML table for notebooks; everything is escaped."""
    return _table(title, ((name, escape(str(value))) for name, value in rows))


def _html(value: object, depth: int) -> str:
    rows = _rows(value) if depth else None
    if rows is None:
        return escape(value if isinstance(value, str) else short_repr(value))
    title = type(value).__name__ if _fields(value) is not None else ""
    count, shown = len(rows), rows[:MAX_ITEMS]
    cells = [(name, _html(part, depth - 1)) for name, part in shown]
    if count > MAX_ITEMS:
        cells.append(("…", f"{count - MAX_ITEMS} more of {count}"))
    return _table(title, cells)


def _table(title: str, cells: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><th {LEFT}>{escape(name)}</th><td {LEFT}>{cell}</td></tr>" for name, cell in cells)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}{lines}</table>"


def _rows(value: object) -> list[tuple[str, object]] | None:
    """Returns the rows of a table, or None for a value that is not shown as one."""
    fields = _fields(value)
    if fields is not None:
        return fields
    if isinstance(value, Mapping):
        return [(key if isinstance(key, str) else short_repr(key), part) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(str(number), part) for number, part in enumerate(value)]
    return None


def _fields(value: object) -> list[tuple[str, object]] | None:
    """Returns the non-default fields of a value whose `repr` is `short_repr`; None for other values."""
    if type(value).__repr__ is not short_repr:
        return None
    if isinstance(value, msgspec.Struct):
        pairs = [
            (name, getattr(value, name), default)
            for name, default in zip(value.__struct_fields__, _defaults(type(value)), strict=True)
        ]
    else:
        assert dataclasses.is_dataclass(value)
        pairs = [
            (field.name, getattr(value, field.name), field.default) for field in dataclasses.fields(value)
        ]
    hidden = getattr(value, "HIDDEN", ())  # secrets
    return [
        (name, part) for name, part, default in pairs if name not in hidden and not _is_default(part, default)
    ]


def _defaults(kind: type[msgspec.Struct]) -> tuple[object, ...]:
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    return (msgspec.NODEFAULT,) * required + kind.__struct_defaults__


def _is_default(value: object, default: object) -> bool:
    if default is msgspec.NODEFAULT or default is dataclasses.MISSING:
        return False
    return value == default or (isinstance(value, Collection) and not value and default is not None)


def _cut(items: Iterable[str], count: int) -> list[str]:
    shown = list(islice(items, MAX_ITEMS))
    return shown if count <= MAX_ITEMS else [*shown, f"… {count - MAX_ITEMS} more of {count}"]


class NotebookTable:
    """Base of result dataclasses (`repr=False`): a short `repr`, and an HTML table in notebooks."""

    __slots__ = ()
    __repr__ = short_repr
    _repr_html_ = html_of
