"""`python -m turbopump` is the command `turbopump`."""

import sys

from turbopump.cli.main import program

if __name__ == "__main__":
    sys.exit(program())
