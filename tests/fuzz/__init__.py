"""Hostile input for every decoder: `python -m tests.fuzz --seconds 60`.

Each target takes bytes and may raise only the exceptions of its table row; any other exception, a failed
`assert`, an input that takes seconds or unlimited memory is a failure, kept under corpus/<target>/crash-*.
"""
