"""`python -m tests.crds`."""

from tests.crds import main

main()
