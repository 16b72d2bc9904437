"""What stops a store from being opened: files we do not understand. Said to the operator, with what to do
about it.
"""


class UnusableStore(Exception):
    """The files are left as they were found."""
