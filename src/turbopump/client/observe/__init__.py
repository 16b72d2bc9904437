"""Observation of a client: hooks of the user, OpenTelemetry, and RocketMQ's message trace.

`hooks.py` defines the contexts of a send and of a delivery; `telemetry.py` and `trace_hooks.py` are hooks,
`trace_sender.py` sends trace records and `trace.py` is their format.

What never belongs here: anything that changes what is sent or consumed, and logs for operators.
"""
