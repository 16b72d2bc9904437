"""Settings of every suite."""

import signal

from tests import properties

pytest_plugins = ["tests.again", "tests.quick", "tests.secrets_kept"]

properties.load_profile()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores Ctrl-C, and so would every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
