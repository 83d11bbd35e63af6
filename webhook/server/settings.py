"""What can be set about the admission server, with the reason for each default.

Values and their defaults only: nothing here opens a file or reads the clock. The command line fills one `Settings`;
`serve` and everything below it only read it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KIBIBYTE: Final = 1 << 10
MEBIBYTE: Final = 1 << 20
INSTALLED_RULES: Final = Path("/etc/gpu-webhook/rules")


def default_rules(package: Path = Path(__file__).parents[1]) -> Path:
    """The rules/ folder beside the package (a checkout), else the place where a container mounts its rules."""
    beside = package.parent / "rules"
    return beside if beside.is_dir() else INSTALLED_RULES


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the certificate made on first start is kept (XDG Base Directory specification)."""
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/"), ".local", "state")
    return Path(base, "gpu-webhook")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of the admission server. Times are in seconds, sizes in bytes."""

    bind: str = "127.0.0.1:8443"
    """Address and port to listen on. Loopback by default: to be reachable from outside has to be chosen."""

    metrics: str | None = None
    """Another address and port for the same. Only there, and to loopback, /metrics names tenants."""

    rules: Path = field(default_factory=default_rules)
    """The directory of rule documents."""

    surroundings: Path | None = None
    """The file that `gpu-webhook watch` writes. None: the server knows the rules and nothing of the nodes."""

    tls_cert: Path | None = None
    """PEM certificate chain. None, with `tls_key` None: a self-signed pair in `state`, made on first start."""

    tls_key: Path | None = None
    """PEM private key of `tls_cert`."""

    client_ca: Path | None = None
    """PEM certificates of the CA that signs the API server's client certificate; None: clients need none."""

    state: Path = field(default_factory=state_directory)
    """The directory of the self-signed pair."""

    log_level: str = "info"
    """The server's own messages below this level are dropped. Decisions are always written."""

    body_bytes: int = 8 * MEBIBYTE
    """Longest review read. The API server takes objects up to 3 MiB (`--max-request-body-bytes`'s default,
    apiserver/pkg/server/config.go: 3 * 1024 * 1024) and a review of an UPDATE holds two, plus the envelope and
    room for strings that grow when they are escaped anew."""

    bodies_bytes: int = 64 * MEBIBYTE
    """All bodies that are being received together: so much for newcomers, and as much for established connections."""

    connections: int = 1000
    """Established connections: with a certificate of `client_ca`, or a review that was answered. One API server has
    at most 200 mutating requests in flight by default (`--max-mutating-requests-inflight`), so this is five."""

    newcomers: int = 1000
    """All other connections, those in their handshake included, and as many that wait for it. So many that
    five API servers have room that connect anew at the same moment."""

    handshake_seconds: float = 10
    """For the TLS handshake, from accept."""

    header_seconds: float = 10
    """For the whole head of a request, from its first byte. A connection that has sent nothing yet is idle: Go's
    client opens some that it only uses later."""

    body_seconds: float = 10
    """For the whole body of a request, from the end of its head. The API server's own limit on a call is at
    most 30 s (`timeoutSeconds`), and it sends a review in one go."""

    keepalive_seconds: float = 120
    """How long an idle connection is kept. The API server keeps its own 90 s [measured]. The client must close first,
    or a request may meet a closing connection."""

    answer_seconds: float = 40
    """For an answer that has to wait for the ledger. The lane keeps to the `?timeout=` of the API server, at most
    30 s; if it does not, this ends the connection."""

    write_seconds: float = 10
    """How long a peer may stop reading its answers."""

    linger_seconds: float = 2
    """How long the rest of a refused body is read and dropped. Closing with unread bytes resets the connection,
    and the reset can overtake the answer that says why (RFC 9112, section 9.6)."""

    drain_seconds: float = 10
    """After SIGTERM, how long new requests are still answered: the Service's endpoints and idle connections of the
    API server lead here for a while."""

    finish_seconds: float = 10
    """After the drain, how long reviews in flight may take. The sum of both stays under a pod's default
    `terminationGracePeriodSeconds` of 30."""

    tick_seconds: float = 0.25
    """How often deadlines, the certificate and the surroundings are checked."""

    rules_seconds: float = 2
    """How often the rule files are checked. A kubelet brings a changed ConfigMap within about a minute."""

    @property
    def certificate(self) -> tuple[Path, Path]:
        """The certificate and key files in use."""
        if self.tls_cert is not None and self.tls_key is not None:
            return self.tls_cert, self.tls_key
        return self.state / "tls.crt", self.state / "tls.key"
