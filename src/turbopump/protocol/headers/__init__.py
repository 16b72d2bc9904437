"""Typed request and response headers, one module per family; fields have their wire spelling."""

from turbopump.protocol.headers.base import Header

__all__ = ["Header"]
