"""One extension of each kind; see ``CONTRIBUTING.md``. Importing this package loads none of them."""
