"""Jobs that connect sources, transforms and sinks: `turbopump pipeline <name>`.

A job is a table of flags and a function; `catalog.py` lists them all. What a job does to rows is in
`transforms/`, where it reads and writes in `endpoint.py` and `endpoint_io.py`, and what a person sees of it
in `display.py`.
"""
