"""The name server: a table of live brokers and their topics, and a small key-value table.

Name servers do not know one another; every broker registers with each of them.
"""
