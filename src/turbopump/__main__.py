"""`python -m turbopump` is the command `turbopump`."""

import sys

from turbopump.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
