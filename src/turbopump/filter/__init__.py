"""Filter expressions: SQL92 conditions on message properties, and tag expressions. Values in, values out.

SQL is parsed, checked and evaluated as by the filter module of Apache 5.5.0. The entry points are
`compile_sql` and `tags_of`. Invalid text raises `BadExpression`, with its position, or `BadTags`. No await,
clock, file or socket belongs here.
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
