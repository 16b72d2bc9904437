"""The command line, and the composition root: the only package that builds servers and clients together.

Reads flags, environment and files, prints for people, turns failures into one line and an exit status. No
other package imports this one. Each command imports its module when it runs, to keep the start short.
"""
