"""The book of global transactions: what was opened, decided and done, for several participants.

The broker that is the home of a group keeps the book of its transactions, decides each once, on disk before
it is answered, and commits or rolls back their messages. It knows no database, no service and no user code:
what a branch is, and how to end it, belongs to the clients.
"""
