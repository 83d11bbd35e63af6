"""A campaign by hand: `python -m tests.attacks.fuzzing TARGET COUNT [SEED]` shows each kind of failure once."""

import sys
import traceback
from random import Random
from time import process_time

from tests.attacks.fuzzing import campaign
from tests.attacks.fuzzing.targets import TARGETS


def main(name: str, inputs: str, seed: str = "0") -> None:
    """Go on after failures, and show each kind of them once."""
    dice, done = Random(int(seed)), campaign.Tally()  # noqa: S311  not a secret
    shown: dict[str, int] = {}
    began = process_time()
    for _ in range(int(inputs)):
        content = TARGETS[name].make(dice)
        try:
            campaign.attempt(name, content, done)
        except Exception as error:  # noqa: BLE001  that is what is looked for
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} {frame.filename.rpartition('/')[2]}:{frame.lineno} {str(error)[:34]}"
            shown[kind] = shown.get(kind, 0) + 1
            if shown[kind] == 1:
                print(f"--- {kind}\n{campaign.keep(name, content)}\n{str(error)[:1500]}\n{content[:1500]!r}")  # noqa: T201  as above
                print(*traceback.format_tb(error.__traceback__)[-4:])  # noqa: T201  as above
    each = 1e6 * (process_time() - began) / int(inputs)
    print(f"{name}: {done}; {each:.0f} us each\n{shown}")  # noqa: T201  a program by hand


if __name__ == "__main__":
    main(*sys.argv[1:])
