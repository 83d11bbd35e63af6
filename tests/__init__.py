"""Everything that is run and not shipped; a package, so that `python -m tests.cluster` finds these tests."""
