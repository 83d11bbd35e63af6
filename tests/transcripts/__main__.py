"""`python -m tests.transcripts [--write] [part of a name]`: compare the transcripts with what commands print now."""

import argparse
import difflib
import sys

from tests.transcripts import transcript


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.transcripts", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make what commands print the expectation")
    parser.add_argument("part", nargs="?", default="", help="only transcripts with this in their names")
    options = parser.parse_args()
    different = 0
    for file in (file for file in transcript.find() if options.part in str(file)):
        expected = file.read_text()
        printed = transcript.replayed(expected)
        if printed != expected:
            different += 1
            before, after = (text.splitlines(keepends=True) for text in (expected, printed))
            sys.stdout.writelines(difflib.unified_diff(before, after, file.name, "printed now"))
            if options.write:
                file.write_text(printed)
    sys.stdout.write(f"{different} {'written' if options.write else 'differ'}\n")
    return int(different > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
