"""Hostile input for every decoder: `python -m tests.fuzz --seconds 60`.

Each target takes bytes and may raise only what its table row allows; anything else, a broken promise
(`assert`), an input that takes seconds or memory without bound is a failure, kept under
corpus/<target>/crash-*.
"""
