"""The blocking coordinator: `coordinator.py` is written by scripts/faces.py from the async one."""
