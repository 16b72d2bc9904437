"""What stops a store from being opened: files we do not understand, and what to do about them."""


class UnusableStore(Exception):
    """The files are left as they were found."""
