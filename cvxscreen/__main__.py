"""``python -m cvxscreen`` is the ``cvxscreen`` command."""

import sys

from cvxscreen.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
