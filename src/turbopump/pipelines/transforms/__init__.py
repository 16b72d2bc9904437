"""Transforms that jobs apply to messages: functions from DataFrame to DataFrame, for batches and streams.

They take rows with the columns of `schema.py` and use only the columns they name. Nothing is read or written.
"""
