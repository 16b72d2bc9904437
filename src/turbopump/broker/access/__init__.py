"""Access control of the broker: the gate before all handlers, requests about users, tables for copies."""
