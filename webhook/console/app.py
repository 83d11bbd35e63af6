"""The routes as a Flask application, and its process: gunicorn with one worker of a few threads.

gunicorn, and not Werkzeug's server, which starts a thread for every connection without a bound, waits for ever for a
silent peer, and says itself that it is for development. gunicorn is here anyway: it serves the reviews.
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import yaml
from flask import Flask, Response, abort, render_template, request
from gunicorn.workers.gthread import ThreadWorker
from jinja2 import StrictUndefined
from markupsafe import Markup, escape
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from webhook.cli import check, explanation, inventory, options, snapshot, table, tenants
from webhook.cli.explain import Answer, View, answer_question
from webhook.cli.explanation import Setting
from webhook.cli.snapshot import Problem, Snapshot
from webhook.cli.table import gib, memory, short
from webhook.core.forms import document
from webhook.core.forms.document import UnreadableError
from webhook.core.kube import quantity
from webhook.core.request import PREFIX
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents, rule_files, surroundings
from webhook.server.serve import Application

# What keeps a page without a log-in for the person at the machine: who may ask, and what an answer may do.

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends `Origin: null`, even to ourselves
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal(method: str, headers: Headers, bound: str) -> str | None:
    """Why a request is refused, None if it is not; `bound` is the host that the console listens on."""
    host = headers.get("Host", "")
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        name = ""
    ours = name == "localhost" or name.endswith(".localhost") or (name and name == bound.lower())
    if not ours and (address := _address(name)) is not None:  # an address needs no DNS
        own = _address(bound)
        ours = address.is_loopback or address == own or (own is not None and own.is_unspecified)
    if not ours:
        return (
            f'the console answers to the names of this machine, not to "{host[:100]}": '
            "open it as localhost or 127.0.0.1, or start it with --bind and the name you use"
        )
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    from_here = site in {None, "same-origin", "none"} and origin in {None, f"http://{host}", f"https://{host}"}
    if method not in {"GET", "HEAD"} and not from_here:
        return "the console takes posts from its own page and from programs, not from other web sites"
    return None


def _address(name: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(name)
    return None


# What the pages show: inventory and tenants, of files or of the cluster itself, and the rules as they are now. Each
# is safe to use from several threads, which wait while one of them reads.

FRESH_SECONDS: Final = 10.0
"""How long what the cluster said is shown again: a page that is reloaded must not be a load on the API server."""


class Seen(NamedTuple):
    """A view and where it is from, or why there is none.

    `counted`: what pods ask, or tenants use, is known; else only what exists, or what tenants may use.
    """

    view: dict[str, Any] | None
    origin: str
    counted: bool
    problem: str = ""


class _Latest:
    """What was read last; read again when its file has changed, or after FRESH_SECONDS if it has none."""

    def __init__(self, file: Path | None, origin: str, read: Callable[[], Snapshot], *, counted: bool) -> None:
        self._file, self._origin, self._counted = file, origin, counted
        self._lock = threading.Lock()
        self._read = lru_cache(1)(lambda _stamp: read())

    def latest(self) -> Snapshot:
        """What is known at this moment; raises UnreadableError."""
        stamp = rule_files.file_stamp(self._file) if self._file else monotonic() // FRESH_SECONDS
        with self._lock:
            return self._read(stamp)

    def now(self, rulebook: Rulebook) -> Seen:
        """The same, as the rules see it."""
        try:
            return Seen(self._view(self.latest(), rulebook), self._origin, self._counted)
        except UnreadableError as error:
            return Seen(None, self._origin, self._counted, str(error))

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> dict[str, Any]:
        raise NotImplementedError


class Source(_Latest):
    """Nodes and pods as they are now: of a file, of the cluster (`live`), or only nodes, of the watcher's file."""

    def __init__(self, file: Path | None = None, around: Path | None = None, *, live: bool = False) -> None:
        self.around = around

        def read() -> Snapshot:
            if live:
                return snapshot.read_cluster(snapshot.INVENTORY)
            if file is not None:
                return _parsed(Snapshot(snapshot.INVENTORY), file)
            if around is not None:
                return Snapshot(snapshot.INVENTORY, {"Node": [*surroundings.read(around).get("nodes", ())]})
            text = "nobody said where nodes and pods are: start the console with --inventory FILE or --cluster"
            raise UnreadableError(text)

        origin = "the cluster" if live else str(file or around or "")
        super().__init__(None if live else file or around, origin, read, counted=live or file is not None)
        self._viewed: tuple[Snapshot, Rulebook, dict[str, Any]] | None = None

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> dict[str, Any]:
        """The view of objects, kept while both stay: for thousands of pods it takes a second."""
        with self._lock:
            if self._viewed is None or self._viewed[0] is not objects or self._viewed[1] is not rulebook:
                self._viewed = objects, rulebook, inventory.overview(objects, rulebook)
            return self._viewed[2]


class Standings(_Latest):
    """Tenants as they are now: of a file, of the cluster (`live`), or of the rule files alone."""

    def __init__(self, file: Path | None = None, *, live: bool = False) -> None:
        read = snapshot.read_tenants if live else lambda: _parsed(Snapshot(snapshot.TENANTS), file)
        origin = "the cluster" if live else str(file or "the rule files")
        super().__init__(None if live else file, origin, read, counted=live or file is not None)

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> dict[str, Any]:
        return tenants.overview(objects, rulebook, time(), live=self._counted)


def _parsed(objects: Snapshot, file: Path | None) -> Snapshot:
    try:
        if file is not None:
            objects.parse(file.read_bytes(), file.name)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
    return objects


class Loaded(NamedTuple):
    """A rulebook, or the problems that keep the files from being one.

    Never an older rulebook: a page that explains by rules which are no longer on disk would mislead their author.
    `unseen` is why nothing is known of the cluster around, where something should be.
    """

    rulebook: Rulebook | None
    problems: Sequence[document.Problem] = ()
    unseen: str | None = None

    def contract(self) -> dict[str, Any]:
        """Whether the rules can be used; then what they say, else everything that is wrong with them."""
        return check.broken(self.problems) if self.rulebook is None else check.contract(self.rulebook)


class LoadedRules:
    """The rules of one directory, in the surroundings that a file tells of; safe to use from several threads."""

    def __init__(self, directory: Path, around: Path | None = None) -> None:
        self._directory, self._around = directory, around
        self._lock = threading.Lock()
        self._load = lru_cache(1)(lambda _stamp: rule_files.load_cached(directory))
        self._look = lru_cache(1)(lambda _stamp, file: surroundings.around(self._load(_stamp[0]), file))

    def now(self) -> Loaded:
        """What the files hold at this moment. What cannot be read is read again, changed or not: it may pass."""
        around = self._around
        with self._lock:
            # Before the files are read: a change in between is seen next time.
            stamp = rule_files.directory_stamp(self._directory), around and rule_files.file_stamp(around)
            try:
                return Loaded(self._look(stamp, around) if around else self._load(stamp[0]))
            except rule_files.RuleFilesError as error:
                return Loaded(None, error.problems)
            except UnreadableError as error:
                unseen = f"Nothing is known of the cluster's nodes: {error}"
                return Loaded(self._load(stamp[0]), unseen=unseen)


# Text that was pasted into the page: bytes in, explanations out, or a sentence with the line it is about.

MAX_BYTES: Final = 1 << 20
"""etcd stores no object above 1.5 MiB, and a larger pod is not readable on a page."""

MAX_VALUES: Final = 50_000
"""With aliases counted as often as they are used. A large pod has some 500 values; so many take two seconds,
and ten aliases of ten aliases of ten ... are refused before they are memory."""

MAX_EXCERPT: Final = 200


class PlacedError(UnreadableError):
    """Where the text is nothing that can be explained; `excerpt` is that line, if it is short, `caret` the column."""

    def __init__(self, message: str, excerpt: str, caret: str) -> None:
        super().__init__(message)
        self.excerpt, self.caret = excerpt, caret


class Pasted(NamedTuple):
    """What the form has, or for scripts the body and the address: `at` is a time as Kubernetes writes it, or now."""

    text: bytes
    around: bytes = b""
    namespace: str = ""
    user: str = ""
    at: str = ""
    backend: str = ""


def explain_text(pasted: Pasted, rulebook: Rulebook, there: Snapshot) -> Answer:
    """Explain every pod in the text as the command does, by the tenants that are there; raises UnreadableError."""
    if len(pasted.text) + len(pasted.around) > MAX_BYTES:
        raise UnreadableError(f"this is more than {MAX_BYTES >> 20} MiB")
    if not pasted.text.strip():
        raise UnreadableError("there is nothing here yet: paste a pod, or anything that makes pods")
    try:
        at = quantity.parse_time(pasted.at) if pasted.at else time()
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    setting = Setting(pasted.namespace, pasted.user, at)
    objects = _read(pasted.text, "the text")
    around = _read(pasted.around, "the objects around it")
    answered = answer_question(objects, rulebook, there, around=around, setting=setting, backend=pasted.backend)
    if not answered.explanations:
        raise UnreadableError("there is no pod in this, and nothing that makes pods")
    return answered


def _read(content: bytes, name: str) -> list[Mapping[str, Any]]:
    try:
        return documents.parse_manifests(content, name, most=MAX_VALUES) if content.strip() else []
    except document.DocumentError as error:
        at = error.problems[0].at
        lines = (
            content.decode(errors="replace").splitlines()[at.line - 1 : at.line] if at.column <= MAX_EXCERPT else ()
        )
        message = f"line {at.line}, column {at.column}: {str(error).removeprefix(f'{at}: ')}"
        raise PlacedError(message, "".join(lines)[:MAX_EXCERPT], " " * (at.column - 1) + "^") from None


TRIES: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(Path(__file__).with_name("tries.yaml").read_bytes())
"""For a reader of the page who has none at hand: by the name in the link, a title for it and the text of the form."""


SHOWN: Final = 50
"""Pods that a page lists."""

OPEN: Final = 3
"""Pods of these that are explained at once; each of the others when its row is pressed."""

MOST_ROWS: Final = 200
"""Nodes and applications that a page holds; a cluster of thousands is for `/api/inventory`."""

DRAINED: Final = 16 << 20
"""How much of a body that is too large is read and dropped: closing on unread bytes resets the connection, and the
reset can overtake the answer that says why (RFC 9112, section 9.6)."""


def create_app(
    rules: Path, bound: str = "127.0.0.1", source: Source | None = None, standings: Standings | None = None
) -> Flask:
    """The console over the rule files of a directory; `bound` is the host that it listens on."""
    source, standings = source or Source(), standings or Standings()
    watched = LoadedRules(rules, source.around)
    app = Flask(__name__)
    most = MAX_BYTES + (64 << 10)  # for what a form puts around the text
    app.config.update(MAX_CONTENT_LENGTH=most, MAX_FORM_MEMORY_SIZE=most)
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    app.jinja_env.filters.update(
        # A field path that a narrow page can break where a person would.
        breakable=lambda path: escape(path).replace("[", Markup("<wbr>[")).replace(".", Markup("<wbr>.")),
        place=lambda rule: rule.rpartition("(")[2].removesuffix(")"),  # of `hami-vgpu (hami-vgpu.yaml:48)`
        short=short,
        memory=memory,
        state=inventory.state,
        card=inventory.card,
    )

    @app.before_request
    def refuse() -> None:
        if reason := refusal(request.method, request.headers, bound):
            abort(HTTPStatus.FORBIDDEN, reason)

    @app.after_request
    def harden(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    @app.errorhandler(HTTPException)
    def say(error: HTTPException) -> Response:
        if isinstance(error, RequestEntityTooLarge):
            stream, left = request.environ["wsgi.input"], DRAINED
            with suppress(OSError):
                while left > 0 and (chunk := stream.read(1 << 16)):
                    left -= len(chunk)
            error.description = f"this is more than {MAX_BYTES >> 20} MiB"
        status = HTTPStatus(error.code or 500)
        if request.path.startswith("/api/"):
            response = _json({"error": error.description}, status)
        else:
            response = Response(f"{status} {status.phrase}: {error.description}\n", status, mimetype="text/plain")
        if allowed := getattr(error, "valid_methods", None):
            response.headers["Allow"] = ", ".join(allowed)
        return response

    # What is loaded, and pods that are tried.

    @app.get("/")
    def begin() -> str:
        """The form, with what the address asks for: an example of a back end, or a pod to begin with."""
        loaded = watched.now()
        text = TRIES.get(request.args.get("try", ""), TRIES["share"])["text"]
        backend = request.args.get("backend", "")
        if loaded.rulebook is None or backend not in loaded.rulebook.backends:
            return _page(loaded, Pasted(text.encode()), standings)
        examples = loaded.rulebook.backends[backend].examples
        number = request.args.get("example", type=int)
        if number is not None and 0 < number <= len(examples):
            ask = examples[number - 1].ask
            words = {f"{PREFIX}{key.removeprefix('gpu-')}": value for key, value in ask.items()}
            metadata = {"name": "example", "annotations": words}
            containers = [{"name": "main", "image": "registry.example/main:1"}]
            example = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
            text = yaml.safe_dump(example, sort_keys=False)
        return _page(loaded, Pasted(text.encode(), backend=backend), standings)

    @app.post("/")
    def explained() -> str:
        text = request.form.get("text", "").encode(errors="replace")
        return _page(watched.now(), _pasted(text, request.form), standings)

    @app.get("/rules")
    def what_the_rules_say() -> str:
        rules, backend = watched.now().contract(), request.args.get("backend", "")
        return render_template("rules.html", rules=rules, unseen=None, asked=backend)

    @app.get("/api/rules")
    def what_is_loaded() -> Response:
        return _json(watched.now().contract())

    @app.post("/api/explain")
    def explain() -> Response:
        rulebook = _usable(watched)
        if len(body := request.get_data()) > MAX_BYTES:
            raise RequestEntityTooLarge
        try:
            there = standings.latest()
        except UnreadableError as error:
            return _json({"error": f"{UNKNOWN}{error}"}, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            answer = explain_text(_pasted(body, request.args), rulebook, there)
        except UnreadableError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        return _json(explanation.contract(answer.explanations))

    # The global view, and the tenants.

    @app.get("/inventory")
    def what_there_is() -> str:
        loaded = watched.now()
        sight = source.now(loaded.rulebook) if loaded.rulebook else None
        return render_template("inventory.html", rules=loaded.contract(), unseen=None, sight=sight, most=MOST_ROWS)

    @app.get("/api/inventory")
    def the_same_for_scripts() -> Response:
        return _contract(source.now(_usable(watched)))

    @app.get("/tenants")
    def who_uses_what() -> str:
        loaded = watched.now()
        return render_template(
            "tenants.html",
            rules=loaded.contract(),
            unseen=None,
            standing=standings.now(loaded.rulebook) if loaded.rulebook else None,
            most=MOST_ROWS,
            near=90,  # percent of a limit from which a bar is of another colour
            over=tenants.OVER,
            short=short,
            gib=gib,
        )

    @app.get("/api/tenants")
    def who_uses_what_for_scripts() -> Response:
        return _contract(standings.now(_usable(watched)))

    return app


def _pasted(text: bytes, form: Mapping[str, str]) -> Pasted:
    """The text, with what stands beside it in the fields of the form, or in the address."""
    fields = {name: form.get(name, "").strip() for name in ("namespace", "user", "at", "backend")}
    return Pasted(text, form.get("around", "").encode(errors="replace"), **fields)


UNKNOWN: Final = "Nothing is known of tenants: "

MARKS: Final = ("answer", "listed", "code")
"""What a person chooses pods by, as the form names it: the answer, the namespace, and the codes of violations."""


def _page(loaded: Loaded, asked: Pasted, standings: Standings) -> str:
    """The page with the form, and what becomes of the pods in it: of many of those that the request chooses."""
    answer, error, unknown = Answer((), ()), None, ""
    try:
        there = standings.latest()
    except UnreadableError as unreadable:
        there, unknown = Snapshot(snapshot.TENANTS), f"{UNKNOWN}{unreadable}"
    if loaded.rulebook is not None:
        try:
            answer = explain_text(asked, loaded.rulebook, there)
        except UnreadableError as unreadable:
            error = unreadable
    # The pods with their MARKS; first those that are refused, then those that are warned of.
    rows: list[dict[str, Any]] = []
    for pod in answer.explanations:
        decision = pod.decision
        fate = "denied" if not decision.allowed else "warned" if decision.warnings else "allowed"
        codes = sorted({violation.code for violation in decision.violations})
        text = " ".join([pod.title, *map(str, decision.violations), *decision.warnings])
        rows.append({"pod": pod, "answer": [fate], "listed": [pod.namespace], "code": codes, "text": text.lower()})
    rows.sort(key=lambda row: ["denied", "warned", "allowed"].index(row["answer"][0]))
    rows, given = [{**row, "place": place} for place, row in enumerate(rows, 1)], request.values
    choosing = len(rows) > OPEN and "all" not in given
    wanted = {name: given[name] for name in MARKS if choosing and given.get(name)}
    find = given.get("find", "").strip().lower() if choosing else ""
    listed = [row for row in rows if find in row["text"] and all(wanted[name] in row[name] for name in wanted)]
    pages = -(-len(listed) // SHOWN)
    page = max(1, min(given.get("page", 1, type=int), pages))
    shown = listed[(page - 1) * SHOWN : page * SHOWN]
    opened = [row for row in rows if str(row["place"]) == given.get("pod")] or shown[:OPEN]
    return render_template(
        "page.html",
        rules=loaded.contract(),
        unseen=loaded.unseen or unknown,
        tries=TRIES,
        asked=asked,
        rows=rows,
        listed=len(listed),
        shown=shown,
        page=page,
        pages=pages,
        wanted=wanted,
        find=find,
        marks={name: sorted(Counter(mark for row in rows for mark in row[name]).items()) for name in MARKS},
        views={row["place"]: View(row["pod"]) for row in opened},
        most=OPEN,
        problems=[*answer.problems, *(Problem("", advice) for advice in answer.advice)],
        error=error,
    )


def _usable(rules: LoadedRules) -> Rulebook:
    """The rulebook; where the rules do not load, the request ends with what is wrong with them."""
    loaded = rules.now()
    if loaded.rulebook is None:
        abort(_json({"error": "the rules cannot be used", **loaded.contract()}, HTTPStatus.SERVICE_UNAVAILABLE))
    return loaded.rulebook


def _contract(view: Seen) -> Response:
    """A view for scripts, or why there is none."""
    if view.view is None:
        return _json({"error": view.problem}, HTTPStatus.SERVICE_UNAVAILABLE)
    return _json(table.contract(view.view))


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", status, mimetype="application/json")


# The process, on a socket that is bound beforehand.


class _Worker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """A worker that Ctrl-C ends at once."""

    def handle_quit(self, _sig: int, _frame: object) -> None:
        """Leave at once: gunicorn would ask the pool of threads for its lock, which the main thread may hold."""
        os._exit(0)


def serve(bind: str, rules: Path, source: Source | None = None, standings: Standings | None = None) -> int:
    """Serve the console until told to stop; the exit code. Raises UsageError."""
    listener = options.listening(bind, "--bind", "choose another with --bind HOST:PORT")
    name, number = listener.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    print(f"console: http://{shown}:{number}/ with the rules of {rules}", flush=True)  # noqa: T201 - the command line
    host, _ = options.address(bind)
    application = Application(
        create_app(rules, host, source, standings),
        bind=f"fd://{listener.detach()}",
        worker_class=_Worker,
        threads=16,  # browsers open connections ahead and say nothing on them: each holds a thread for 5 s
        loglevel="warning",
        graceful_timeout=2,
        keepalive=5,
    )
    with suppress(KeyboardInterrupt):  # before gunicorn has set its own handlers
        return application.serve()
    return options.FINE
