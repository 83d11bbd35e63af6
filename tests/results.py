"""Pages that a soak writes: what was seen, with the date and the commit it was seen at."""

import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.laws import SOAK


@dataclass(slots=True)
class Page:
    """A page of results; its head says `{when}` and `{commit}`."""

    path: Path
    head: str
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Take a line; a soak writes down all lines so far."""
        self.lines.append(line)
        if SOAK:
            self.path.write_text(self.text())

    def text(self) -> str:
        """The head, and each line as it came."""
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        head = self.head.format(when=datetime.now(UTC), commit=commit.stdout.strip() or "unknown")
        return head + "".join(f"{line}\n" for line in self.lines)
