"""Typed request and response headers, one file per family; a field has its wire spelling."""

from turbopump.protocol.headers.base import Header

__all__ = ["Header"]
