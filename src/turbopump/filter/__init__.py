"""Expressions in SQL92 over the properties of messages: read, checked and evaluated as Apache's filter module
of 5.5.0 does. Values in, values out: no await, no clock, no file, no socket.

`compile_sql` is the door. What is wrong with a text is a `BadExpression`, which knows where.
"""

from turbopump.filter.errors import BadExpression
from turbopump.filter.evaluate import Undecidable
from turbopump.filter.sql import Predicate, compile_sql

__all__ = ["BadExpression", "Predicate", "Undecidable", "compile_sql"]
