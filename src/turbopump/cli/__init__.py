"""The commands, and the one place that builds whole servers out of their parts.

Reads flags, environment and files, prints what a person reads, turns failures into one line and an exit
status. Nobody imports this package. A module is imported by the command that needs it, because a start counts
in milliseconds.
"""
