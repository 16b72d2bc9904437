"""Access control around the servers: the gate of their routers, files of users and accounts, requests, limits.

Who may do what is decided in `auth`, which is pure. This package gives it requests, files and time.
"""
