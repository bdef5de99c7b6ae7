"""__main__.py - the command `oneshot` of the wheel: starts the program, which is in C."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "oneshot")


def main() -> int:
    """Runs the program in place of this process; returns only if it cannot start."""
    try:
        os.execv(PROGRAM, ["oneshot", *sys.argv[1:]])
    except OSError as e:
        print(
            "oneshot: cannot start %s: %s; want the files of the wheel" % (PROGRAM, e.strerror),
            file=sys.stderr,
        )
    return 1


if __name__ == "__main__":
    sys.exit(main())
