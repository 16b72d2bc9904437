"""Network layer: exchanges frames over connections on which either side may send requests.

Knows frames and commands and what a peer may cost us; knows no role, no topic and no disk.
"""
