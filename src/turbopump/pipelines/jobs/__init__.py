"""Jobs that wire sources, transforms and sinks together: `turbopump pipeline <name>`.

A job is a table of flags and a function; `catalog.py` has them all. What a job does to rows is in
`transforms/`, where from and where to in `places.py`, and what a person sees of it in `showing.py`.
"""
