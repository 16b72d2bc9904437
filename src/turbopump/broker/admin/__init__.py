"""Handles requests of administration tools: topics, groups, connections, configuration, progress, state.

One module per subject, each with a handler whose `routes()` are merged in `part.py`. A handler decodes the
request and puts the answer together. The rules live with the tables (`broker/topics.py`, `groups.py`,
`members.py` and `offsets.py` in `broker/groups`) and never here.
"""
