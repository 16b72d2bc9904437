"""Runs one target under atheris, guided by coverage: `python -m tests.fuzz.guided TARGET [options]`.

The options are libFuzzer's. Instrumented imports are enabled first, so no module of Turbopump may be imported
before.
"""

import contextlib
import logging
import sys
import time


def main() -> None:
    import atheris

    logging.disable()

    with atheris.instrument_imports(include=["turbopump"]):
        from tests.fuzz.search import HANG_S
        from tests.fuzz.targets import all_targets

        name = sys.argv[1]
        target = all_targets()[name]

    def run(data: bytes) -> None:
        began = time.process_time()
        with contextlib.suppress(*target.allowed):
            target.run(data)
        assert time.process_time() - began < HANG_S, "it takes too long"

    atheris.Setup([f"fuzz-{name}", *sys.argv[2:]], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
