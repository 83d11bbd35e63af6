"""The console: one page for people, and the same as JSON for scripts, in a process of its own.

    GET  /              what is loaded, and a form to try a pod; `?try=NAME` and `?backend=NAME&example=N` fill it in
    POST /              the form, explained
    GET  /inventory     the global view: what nodes have and what pods ask
    GET  /tenants       what tenants use of what they may
    GET  /api/rules     what is loaded, or what is wrong with it
    GET  /api/inventory the contract of `gpu-webhook inventory -o json`
    GET  /api/tenants   the contract of `gpu-webhook tenants -o json`
    POST /api/explain   YAML or JSON in, the contract of `gpu-webhook explain -o json` out

Belongs here: HTTP for a person at the machine, and the HTML of the pages. Does not belong here: what is decided
(`webhook.core`), its words (`webhook.cli`), and anything a cluster depends on: admission runs without this package,
and without Flask. Nothing is kept between two requests but what files said, which are read again when they change.

The page is for loopback: there is no log-in. So it answers only to the names of this machine, takes posts only from
itself, runs no script but its own, and bounds what can be pasted.
"""

from webhook.console.app import Source, Standings, create_app, serve

__all__ = ["Source", "Standings", "create_app", "serve"]
