"""What jobs do to messages: functions from DataFrame to DataFrame, for batches and streams alike.

They take rows with the columns of `schema.py` and use only the columns they name. Nothing is read or written.
"""
