"""What tools ask of a broker: its topics and groups, who is connected, its configuration and its state.

One module per subject, each with a class whose `routes()` the broker's root merges. The rules are those of
the tables (`topics.py`, `groups.py`, `members.py`, `offsets.py`); here requests are read and answers put
together.
"""
