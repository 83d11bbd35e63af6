"""What a release consists of: `python -m tests.release` writes it into dist/."""
