"""What keeps a page without a log-in for the person at the machine: who may ask, and what an answer may do.

A web site that a browser has open elsewhere can reach loopback too. It could have its own name resolve to 127.0.0.1
(DNS rebinding: so the Host has to be a name of this machine), or post a form here (so a post says where it comes
from). A client that is no browser sends neither Origin nor Sec-Fetch-Site, and is let in.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

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
