"""What jobs do to messages, each a function from DataFrame to DataFrame, for batches and streams alike.

They take rows as `schema.py` draws them and look only at the columns they name. Nothing is read or written.
"""
