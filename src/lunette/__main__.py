"""`python -m lunette`: the command line, where its script is not on the path."""

from lunette.cli import main

if __name__ == "__main__":
    main()
