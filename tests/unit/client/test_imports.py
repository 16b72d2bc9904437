import subprocess
import sys


def test_the_client_needs_nothing_that_only_posix_has() -> None:
    """The disk is the module that asks for `fcntl`, as asyncio does where it is; servers may have both."""
    code = "import sys, turbopump.client.admin, turbopump.client.follow, turbopump.client.producer\n"
    code += "import turbopump.client.consumer, turbopump.client.pull_consumer\n"
    code += "sys.exit(str({'turbopump.runtime.disk', 'resource'} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""
