"""Handles sends: checks each message, chooses its queue and kind, appends it, answers with a receipt.

`send.py` is the general path, `plain_sends.py` the fast one for whole read events. What a kind of message
does while it waits (`broker/delay`, `broker/transactions`), and when an answer may be sent
(`broker/acknowledgement.py`), never belongs here.
"""
