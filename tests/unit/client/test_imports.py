import subprocess
import sys


def test_the_client_needs_nothing_that_only_posix_has() -> None:
    """The disk is the module that asks for `fcntl`, as asyncio does where it is; servers may have both."""
    code = "import sys, turbopump.client.admin, turbopump.client.pull.topic_reader\n"
    code += "import turbopump.client.produce.producer\n"
    code += "import turbopump.client.push.consumer, turbopump.client.pull.consumer\n"
    code += "sys.exit(str({'turbopump.runtime.disk', 'resource'} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""
