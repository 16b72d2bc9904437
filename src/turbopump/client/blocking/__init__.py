"""The blocking clients: each waits for an async client that runs on the background loop.

scripts/faces.py generates all modules from the async classes, except `face.py` and those whose names
end in `_face.py`. What never belongs here: the work of a client.
"""
