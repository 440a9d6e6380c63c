"""`python -m lunette` and the `lunette` script: the command line, and Ctrl-C while it is still loading."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from lunette.cli import main as run
        from lunette.platform import printable

        printable()

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
