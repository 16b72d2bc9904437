"""What keeps a server with access control from starting."""


class AccessFileFault(Exception):
    """Raised for a file of users, accounts or keys that cannot be used; the text names the file."""
