"""What the program reaches for: no address but the API server's, and no pattern that takes long over a text."""

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import webhook
from webhook.core import backends, interpret, kube, plan, policy, projection, request

WEBHOOK = Path(webhook.__file__).parent
CLIENTS = {"aiohttp", "ftplib", "httpx", "kubernetes", "requests", "smtplib", "telnetlib", "urllib3", "xmlrpc"}
PARTS = {"http.client", "http.server", "urllib.request"}
OPENING = {"create_connection", "open_connection", "urlopen"}

SECONDS = 0.2
"""A pattern that looks at a text once takes a few milliseconds; from each letter, half a second or more."""


def _reached(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute) and node.attr in OPENING:
            yield node.attr


def _calls_out(name: str) -> bool:
    return (
        name in OPENING
        or name.partition(".")[0] in CLIENTS
        or any(f"{name}.".startswith(f"{part}.") for part in PARTS)
    )


def test_only_the_client_of_the_api_server_opens_connections() -> None:
    """So no rule, policy, pod or page makes the program fetch an address.

    `doctor` asks replicas, and what `make run` starts asks itself.
    """
    calling = {
        file.relative_to(WEBHOOK).parts[0]
        for file in WEBHOOK.rglob("*.py")
        if any(map(_calls_out, _reached(ast.parse(file.read_text()))))
    }

    assert calling == {"cli", "cluster", "playground.py"}


def _patterns() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Each use of a pattern that reads what stands in a pod, as `module.pattern.method`."""
    modules = [projection, request]
    for package in (backends, interpret, kube, plan, policy):
        names = (module.name for module in pkgutil.iter_modules(package.__path__))
        modules += [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    for module in modules:
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                for method in dict.fromkeys(re.findall(rf"\b{name}\.([a-z]+)\(", source)):
                    used = partial(value.sub, "") if method == "sub" else getattr(value, method)
                    yield f"{module.__name__}.{name}.{method}", used


PATTERNS = [*_patterns()]
LENGTH = 1 << 15
PIECES = ("a", "0", "-", ".", "a-", "0.", "-mig-", "-shared", "0x", "{a}", "a.me")


@pytest.mark.parametrize(("name", "used"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_no_pattern_takes_long_over_a_long_text(name: str, used: Callable[[str], object]) -> None:
    for each in PIECES:
        text = each * (LENGTH // len(each)) + "!"
        began = time.process_time()
        used(text)
        assert time.process_time() - began < SECONDS, f"{name} over {each!r}"
