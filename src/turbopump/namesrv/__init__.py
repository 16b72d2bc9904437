"""The name server: which brokers live, which topics they hold, and a small table of keys and values.

Name servers do not know one another; every broker registers with each of them.
"""
