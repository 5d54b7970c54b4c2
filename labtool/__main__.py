"""`python -m labtool` is `labtool`."""

from labtool.cli import main

if __name__ == "__main__":
    main()
