"""`python -m consilium` and the `consilium` command."""

from server.cli import main

if __name__ == "__main__":
    main()
