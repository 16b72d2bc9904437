#!/bin/sh
''':' # Shell and Python in one: `sh bin/tools.sh`, as books write it, finds the Python beside it and runs the rest.
here=$(dirname "$(readlink -f "$0")")
if [ -x "$here/python3" ]; then exec "$here/python3" "$0" "$@"; fi
exec python3 "$0" "$@"
'''
import sys

from turbopump.cli.mq import tools

sys.exit(tools())
