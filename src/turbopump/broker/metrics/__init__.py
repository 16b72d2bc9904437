"""Figures for Prometheus, under the names and labels of Apache 5.x (`/metrics`, off by default).

`collectors.py` and `lag.py` know where each figure is, `exposition.py` the text format; `exporter.py` puts
them together and serves them. Everything is read when somebody asks; nothing here is on the way of a message.
"""
