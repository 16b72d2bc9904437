"""Traffic counters, statistics for Apache's tools, and Prometheus metrics (`/metrics`, off by default).

`traffic.py` counts and `statistics.py` keeps figures by topic and group. `collectors.py`, `lag.py` and
`message_kinds.py` know where each Prometheus metric comes from, with the names and labels of Apache 5.x;
`exposition.py` writes the text format and `exporter.py` serves the page. Beyond the additions of `traffic.py`
nothing here runs while a message is sent or pulled: metrics are read when the page is requested.
"""
