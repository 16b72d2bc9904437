"""Expressions over messages: SQL92 over their properties, read, checked and evaluated as Apache's filter
module of 5.5.0 does, and the grammar of tags. Values in, values out: no await, clock, file or socket.

`compile_sql` and `tags_of` are the doors. What is wrong with a text is a `BadExpression`, which knows where,
or `BadTags`.
"""

from turbopump.filter.errors import BadExpression, BadTags
from turbopump.filter.evaluate import Undecidable
from turbopump.filter.sql import Predicate, compile_sql
from turbopump.filter.tags import ALL, OR, tags_of, text_of, wanted_tags

__all__ = [
    "ALL",
    "OR",
    "BadExpression",
    "BadTags",
    "Predicate",
    "Undecidable",
    "compile_sql",
    "tags_of",
    "text_of",
    "wanted_tags",
]
