"""``python -m kernel_matrix`` is ``kernel-matrix``."""

from kernel_matrix.cli import main

if __name__ == "__main__":
    main()
