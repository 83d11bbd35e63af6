"""The checks of an installation, as people and scripts see them."""

from webhook.cli import checkup
from webhook.cli import checkup as views
from webhook.cli.checkup import Check

CHECKS = [
    Check("replicas", "ok", "3 replicas are ready"),
    Check("certificate", "fail", "10.0.0.1:443:\x1b[2J it is of another CA, " + "and so on " * 12, "renew it"),
    checkup.unexamined("pods", "forbidden"),
]


def test_the_table_is_aligned_with_the_fix_below_what_was_found() -> None:
    assert list(views.lines(CHECKS)) == [
        "replicas     ok    3 replicas are ready",
        "certificate  fail  10.0.0.1:443: [2J it is of another CA, and so on and so on and so on and so on and so on",
        "                   and so on and so on and so on and so on and so on and so on and so on",
        "                   fix: renew it",
        "pods         fail  not examined: forbidden",
        "                   fix: run it with an account that may read that, where the API server can be reached",
        "",
        "3 checks: 2 failed (certificate, pods), 0 to look at",
    ]


def test_scripts_read_each_check_and_the_worst_result() -> None:
    assert views.contract([CHECKS[0], CHECKS[2]]) == {
        "result": "fail",
        "checks": [
            {
                "check": "replicas",
                "result": "ok",
                "found": "3 replicas are ready",
                "fix": None,
                "examined": True,
            },
            {
                "check": "pods",
                "result": "fail",
                "found": "not examined: forbidden",
                "fix": "run it with an account that may read that, where the API server can be reached",
                "examined": False,
            },
        ],
    }


def test_warnings_alone_are_no_failure() -> None:
    warned = [Check("pods", "warn", "1 pod", "mend it")]

    assert checkup.worst(warned) == "warn"
    assert list(views.lines(warned))[-1] == "1 check: none failed, 1 to look at"
