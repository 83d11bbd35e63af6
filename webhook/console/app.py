"""The routes as a Flask application, and its process: gunicorn with one worker of a few threads.

gunicorn, and not Werkzeug's server, which starts a thread for every connection without a bound, waits for ever for a
silent peer, and says itself that it is for development. gunicorn is here anyway: it serves the reviews.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EADDRINUSE
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from flask import Flask, Response, abort, render_template, request
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker
from jinja2 import StrictUndefined
from markupsafe import Markup, escape
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from webhook.cli import tenants
from webhook.cli.explain import Answer, view
from webhook.cli.explanation import contract
from webhook.cli.inventory import Overview, card, state
from webhook.cli.snapshot import Problem
from webhook.cli.table import gib, memory, short
from webhook.console import pasted
from webhook.console.pasted import Pasted, UnreadableError
from webhook.console.sources import Loaded, LoadedRules, Seen, Source, Standings, T
from webhook.core.rules.rulebook import Rulebook

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


# The routes.

SHOWN: Final = 20
"""Pods whose results a page holds; a list of hundreds is for `/api/explain`."""

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
    most = pasted.MAX_BYTES + (64 << 10)  # for what a form puts around the text
    app.config.update(MAX_CONTENT_LENGTH=most, MAX_FORM_MEMORY_SIZE=most)
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    app.jinja_env.filters.update(
        # A field path that a narrow page can break where a person would.
        breakable=lambda path: escape(path).replace("[", Markup("<wbr>[")).replace(".", Markup("<wbr>.")),
        place=lambda rule: rule.rpartition("(")[2].removesuffix(")"),  # of `hami-vgpu (hami-vgpu.yaml:48)`
        short=short,
        memory=memory,
        state=state,
        card=card,
    )

    # Every request and every answer.

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
            error.description = f"this is more than {pasted.MAX_BYTES >> 20} MiB"
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
        text = pasted.TRIES.get(request.args.get("try", ""), pasted.TRIES["share"])["text"]
        backend = request.args.get("backend", "")
        if loaded.rulebook is None or backend not in loaded.rulebook.backends:
            return _page(loaded, Pasted(text.encode()), standings)
        examples = loaded.rulebook.backends[backend].examples
        number = request.args.get("example", type=int)
        if number is not None and 0 < number <= len(examples):
            text = pasted.tries_for(examples[number - 1])
        return _page(loaded, Pasted(text.encode(), backend=backend), standings)

    @app.post("/")
    def explained() -> str:
        text = request.form.get("text", "").encode(errors="replace")
        return _page(watched.now(), _pasted(text, request.form), standings)

    @app.get("/api/rules")
    def what_is_loaded() -> Response:
        return _json(watched.now().contract())

    @app.post("/api/explain")
    def explain() -> Response:
        rulebook = _usable(watched)
        if len(body := request.get_data()) > pasted.MAX_BYTES:
            raise RequestEntityTooLarge
        there, unknown = standings.there()
        if unknown:
            return _json({"error": unknown}, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            answer = pasted.answer(_pasted(body, request.args), rulebook, there)
        except UnreadableError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        return _json(contract(answer.explanations))

    # The global view, and the tenants.

    @app.get("/inventory")
    def what_there_is() -> str:
        loaded = watched.now()
        sight = source.now(loaded.rulebook) if loaded.rulebook else None
        return render_template("inventory.html", rules=loaded.contract(), unseen=None, sight=sight, most=MOST_ROWS)

    @app.get("/api/inventory")
    def the_same_for_scripts() -> Response:
        return _contract(source.now(_usable(watched)), Overview.contract)

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
        return _contract(standings.now(_usable(watched)), tenants.contract)

    return app


def _pasted(text: bytes, form: Mapping[str, str]) -> Pasted:
    """The text, with what stands beside it in the fields of the form, or in the address."""
    fields = {name: form.get(name, "").strip() for name in ("namespace", "user", "at", "backend")}
    return Pasted(text, form.get("around", "").encode(errors="replace"), **fields)


def _page(loaded: Loaded, asked: Pasted, standings: Standings) -> str:
    """The page with the form, and what becomes of the pods in it."""
    answer, error = Answer((), ()), None
    there, unknown = standings.there()
    if loaded.rulebook is not None:
        try:
            answer = pasted.answer(asked, loaded.rulebook, there)
        except UnreadableError as unreadable:
            error = unreadable
    return render_template(
        "page.html",
        rules=loaded.contract(),
        unseen=loaded.unseen or unknown,
        tries=pasted.TRIES,
        asked=asked,
        views=[view(explanation) for explanation in answer.explanations[:SHOWN]],
        hidden=len(answer.explanations[SHOWN:]),
        denied=sum(not explanation.decision.allowed for explanation in answer.explanations),
        problems=[*answer.problems, *(Problem("", advice) for advice in answer.advice)],
        error=error,
    )


def _usable(rules: LoadedRules) -> Rulebook:
    """The rulebook; where the rules do not load, the request ends with what is wrong with them."""
    loaded = rules.now()
    if loaded.rulebook is None:
        abort(_json({"error": "the rules cannot be used", **loaded.contract()}, HTTPStatus.SERVICE_UNAVAILABLE))
    return loaded.rulebook


def _contract(view: Seen[T], form: Callable[[T], dict[str, Any]]) -> Response:
    """The form of a view for scripts, or why there is none."""
    if view.view is None:
        return _json({"error": view.problem}, HTTPStatus.SERVICE_UNAVAILABLE)
    return _json(form(view.view))


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", status, mimetype="application/json")


# The process, on a socket that is bound beforehand.

FAILED: Final = 2


class _Worker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """A worker that Ctrl-C ends at once."""

    def handle_quit(self, _sig: int, _frame: object) -> None:
        """Leave at once: gunicorn would ask the pool of threads for its lock, which the main thread may hold."""
        os._exit(0)


class _Application(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's view of the console, which listens on a file descriptor."""

    def __init__(self, app: Flask, listener: int) -> None:
        self.app, self.listener = app, listener
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn up from here alone: no file, no GUNICORN_CMD_ARGS."""
        chosen = {
            "bind": f"fd://{self.listener}",
            "workers": 1,
            "worker_class": _Worker,
            "threads": 16,  # browsers open connections ahead and say nothing on them: each holds a thread for 5 s
            "control_socket_disable": True,  # gunicorn 27 opens one by default: a way in that has no use here
            "accesslog": None,
            "loglevel": "warning",
            "graceful_timeout": 2,
            "keepalive": 5,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """The application, made before the fork."""
        return self.app


def serve(host: str, port: int, rules: Path, source: Source | None = None, standings: Standings | None = None) -> int:
    """Serve the console until told to stop; the exit code."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reason = str(error.strerror).partition(" (while ")[0]  # Python adds the address, which is said already
        refused = f"cannot listen on {place}: {reason}"
        if error.errno == EADDRINUSE:
            refused = f"{place} is in use: end what listens there, or choose another with --bind HOST:PORT"
        print(f"gpu-webhook: {refused}", file=sys.stderr)  # noqa: T201 - this is the command line
        return FAILED
    name, number = listener.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    print(f"console: http://{shown}:{number}/ with the rules of {rules}", flush=True)  # noqa: T201 - as above
    application = _Application(create_app(rules, host, source, standings), listener.detach())
    parent = os.getpid()
    with suppress(KeyboardInterrupt):  # before gunicorn has set its own handlers
        try:
            application.run()
        except SystemExit as stop:
            if os.getpid() != parent:
                raise  # the worker leaves through here as well
            return FAILED if stop.code else 0
    return 0
