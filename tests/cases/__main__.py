"""`python -m tests.cases [--write] [part of a name]`: compare the expectations of the cases with what happens."""

import argparse
import difflib
import sys
from collections.abc import Iterator

from tests.cases import golden
from tests.cases.golden import Case, Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make what happens the expectation")
    parser.add_argument("part", nargs="?", default="", help="only cases with this in their names")
    options = parser.parse_args()
    different = 0
    for case in (case for case in golden.find() if options.part in case.name):
        happens = golden.outcome(case)
        if happens != case.expected():
            different += 1
            sys.stdout.writelines(_difference(case, happens))
            if options.write:
                _write(case, happens)
    sys.stdout.write(f"{different} {'written' if options.write else 'differ'}\n")
    return int(different > 0 and not options.write)


def _difference(case: Case, happens: Outcome) -> Iterator[str]:
    expected = case.expected()
    for name in golden.EXPECTATIONS:
        before, after = expected.get(name, ""), happens.get(name, "")
        yield from difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"{case.name}/{name}", "what happens"
        )


def _write(case: Case, happens: Outcome) -> None:
    for name in golden.EXPECTATIONS:
        if name in happens:
            (case.folder / name).write_text(happens[name])
        else:
            (case.folder / name).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
