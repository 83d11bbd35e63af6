"""The routes, as a Flask application."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from flask import Flask, Response, abort, render_template, request
from jinja2 import StrictUndefined
from markupsafe import Markup, escape
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from webhook.cli import tenants
from webhook.cli.explain import view
from webhook.cli.explanation import Explanation, contract
from webhook.cli.inventory import Overview, card, state
from webhook.cli.table import gib, memory, short
from webhook.cli.tenants import Problem
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
    if not _is_ours(_name(host), bound):
        return (
            f'the console answers to the names of this machine, not to "{host[:100]}": '
            "open it as localhost or 127.0.0.1, or start it with --bind and the name you use"
        )
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    from_here = site in {None, "same-origin", "none"} and origin in {None, f"http://{host}", f"https://{host}"}
    if method not in {"GET", "HEAD"} and not from_here:
        return "the console takes posts from its own page and from programs, not from other web sites"
    return None


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_ours(name: str, bound: str) -> bool:
    if name == "localhost" or name.endswith(".localhost") or (name and name == bound.lower()):
        return True
    address = _address(name)
    if address is None:
        return False
    listens_everywhere = (own := _address(bound)) is not None and own.is_unspecified
    return address.is_loopback or address == own or listens_everywhere  # an address needs no DNS


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


# The routes, as a Flask application.

SHOWN: Final = 20
"""Pods whose results a page holds; a list of hundreds is for `/api/explain`."""

MOST_ROWS: Final = 200
"""Nodes and applications that a page holds; a cluster of thousands is for `/api/inventory`."""

NEAR: Final = 90
"""Percent of a limit from which a bar is of another colour."""

ROOM: Final = 64 << 10
"""For what a form puts around the text."""

DRAINED: Final = 16 << 20
"""How much of a body that is too large is read and dropped: closing on unread bytes resets the connection, and the
reset can overtake the answer that says why (RFC 9112, section 9.6)."""


def create_app(
    rules: Path, bound: str = "127.0.0.1", source: Source | None = None, standings: Standings | None = None
) -> Flask:
    """The console over the rule files of a directory; `bound` is the host that it listens on."""
    source = source or Source()
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = pasted.MAX_BYTES + ROOM
    app.config["MAX_FORM_MEMORY_SIZE"] = pasted.MAX_BYTES + ROOM
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    app.jinja_env.filters.update(
        breakable=_breakable,
        place=lambda rule: rule.rpartition("(")[2].removesuffix(")"),  # of `hami-vgpu (hami-vgpu.yaml:48)`
        short=short,
        memory=memory,
        state=state,
        card=card,
        selection=tenants.selection,
        ends=tenants.ends,
    )
    watched = LoadedRules(rules, source.around)
    _guard(app, bound)
    standings = standings or Standings()
    _pages(app, watched, standings)
    _api(app, watched, standings)
    _inventory(app, watched, source)
    _tenants(app, watched, standings)
    return app


def _breakable(path: str) -> Markup:
    """A field path that a narrow page can break where a person would."""
    return escape(path).replace("[", Markup("<wbr>[")).replace(".", Markup("<wbr>."))


def _guard(app: Flask, bound: str) -> None:
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


def _pages(app: Flask, rules: LoadedRules, standings: Standings) -> None:
    @app.get("/")
    def begin() -> str:
        loaded = rules.now()
        backend, text = _chosen(loaded)
        return _page(loaded, Pasted(text.encode(), backend=backend), standings)

    @app.post("/")
    def explained() -> str:
        return _page(
            rules.now(), _pasted(request.form.get("text", "").encode(errors="replace"), request.form), standings
        )


def _pasted(text: bytes, texts: Mapping[str, str]) -> Pasted:
    """What stands in the fields of the form, or in the address, beside the text."""
    fields = {name: texts.get(name, "").strip() for name in ("namespace", "user", "at", "backend")}
    return Pasted(text, texts.get("around", "").encode(errors="replace"), **fields)


def _chosen(loaded: Loaded) -> tuple[str, str]:
    """What the address asks for: one of the examples of a back end, or of the pods to begin with."""
    chosen = pasted.TRIES.get(request.args.get("try", ""), pasted.TRIES["share"])
    backend = request.args.get("backend", "")
    if loaded.rulebook is None or backend not in loaded.rulebook.backends:
        return "", chosen.text
    examples = loaded.rulebook.backends[backend].examples
    number = request.args.get("example", type=int)
    if number is None or not 0 < number <= len(examples):
        return backend, chosen.text
    return backend, pasted.tries_for(examples[number - 1])


def _page(loaded: Loaded, asked: Pasted, standings: Standings) -> str:
    explanations: Sequence[Explanation] = ()
    problems: Sequence[Problem] = ()
    error = None
    there, unknown = standings.there()
    if loaded.rulebook is not None:
        try:
            answer = pasted.answer(asked, loaded.rulebook, there)
            explanations, problems = (
                answer.explanations,
                [*answer.problems, *(Problem("", advice_line) for advice_line in answer.advice)],
            )
        except UnreadableError as unreadable:
            error = unreadable
    return render_template(
        "page.html",
        rules=loaded.contract(),
        unseen=loaded.unseen or unknown,
        tries=pasted.TRIES,
        asked=asked,
        views=[view(explanation) for explanation in explanations[:SHOWN]],
        hidden=len(explanations[SHOWN:]),
        denied=sum(not explanation.decision.allowed for explanation in explanations),
        problems=problems,
        error=error,
    )


def _api(app: Flask, rules: LoadedRules, standings: Standings) -> None:
    @app.get("/api/rules")
    def what_is_loaded() -> Response:
        return _json(rules.now().contract())

    @app.post("/api/explain")
    def explain() -> Response:
        rulebook = _usable(rules)
        if len(body := request.get_data()) > pasted.MAX_BYTES:
            raise RequestEntityTooLarge
        there, unknown = standings.there()
        if unknown:
            return _json({"error": unknown}, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            answered = pasted.answer(_pasted(body, request.args), rulebook, there)
        except UnreadableError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        return _json(contract(answered.explanations))


def _inventory(app: Flask, rules: LoadedRules, source: Source) -> None:
    @app.get("/inventory")
    def what_there_is() -> str:
        loaded = rules.now()
        sight = source.now(loaded.rulebook) if loaded.rulebook else None
        return render_template("inventory.html", rules=loaded.contract(), unseen=None, sight=sight, most=MOST_ROWS)

    @app.get("/api/inventory")
    def the_same_for_scripts() -> Response:
        return _contract(source.now(_usable(rules)), Overview.contract)


def _tenants(app: Flask, rules: LoadedRules, standings: Standings) -> None:
    @app.get("/tenants")
    def who_uses_what() -> str:
        loaded = rules.now()
        return render_template(
            "tenants.html",
            rules=loaded.contract(),
            unseen=None,
            standing=standings.now(loaded.rulebook) if loaded.rulebook else None,
            most=MOST_ROWS,
            near=NEAR,
            over=tenants.OVER,
            short=short,
            gib=gib,
        )

    @app.get("/api/tenants")
    def who_uses_what_for_scripts() -> Response:
        return _contract(standings.now(_usable(rules)), tenants.contract)


def _usable(rules: LoadedRules) -> Rulebook:
    """The rulebook; where the rules do not load, the request ends with what is wrong with them."""
    loaded = rules.now()
    if loaded.rulebook is None:
        answer = {"error": "the rules cannot be used", **loaded.contract()}
        abort(_json(answer, HTTPStatus.SERVICE_UNAVAILABLE))
    return loaded.rulebook


def _contract(view: Seen[T], form: Callable[[T], dict[str, Any]]) -> Response:
    """The form of a view for scripts, or why there is none."""
    if view.view is None:
        return _json({"error": view.problem}, HTTPStatus.SERVICE_UNAVAILABLE)
    return _json(form(view.view))


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(value, indent=2) + "\n", status, mimetype="application/json")
