"""The network edge: frames in, frames out, on connections that either side may use to ask.

Knows frames and commands and what a peer may cost us; knows no role, no topic and no disk.
"""
