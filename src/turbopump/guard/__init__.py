"""Access control around the servers: gate of the routers, files of users and accounts, requests, limits.

Who may do what is decided in `auth`, which is pure. This package gives it requests, files and time.
"""
