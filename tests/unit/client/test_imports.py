import subprocess
import sys


def test_the_client_needs_nothing_that_only_posix_has() -> None:
    """The disk is the module that asks for `fcntl`; servers need it, clients must not."""
    code = "import sys, turbopump.client.follow, turbopump.client.producer\n"
    code += "sys.exit('turbopump.runtime.disk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
