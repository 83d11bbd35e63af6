"""Pods as webhooks see them: decoded, defaulted and written again by the API server.

Measured on v1.36: quantities come in canonical form (`0.5` as `500m`, `4000` as `4k`, `8192Mi` as `8Gi`), rounded up
to thousandths; limits are copied into requests; the scheduler is `default-scheduler`; an empty `value:` of a variable
is gone. The same happens to what a webhook's patch leaves behind, so `as_served` also tells what will be stored.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

Object = Mapping[str, Any]

_SERVABLE = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_SIMPLE = re.compile(r"(-?)([0-9]*)(?:\.([0-9]*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?)")
_UNITS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6, "m": -1, "u": -2, "n": -3}


class NeverServedError(ValueError):
    """The API server answers 400 by itself: no webhook ever sees such a pod."""


def as_served(pod: Object) -> dict[str, Any]:
    """The pod as the API server sends it to webhooks, and as it stores it; raises NeverServedError."""
    metadata = {key: value for key, value in pod["metadata"].items() if value}
    for section in ("labels", "annotations"):
        for key, value in (metadata.get(section) or {}).items():
            if not isinstance(value, str):
                raise NeverServedError(f"{key}: {value} is not a string")
    spec = {"schedulerName": "default-scheduler", "restartPolicy": "Always", "securityContext": {}} | dict(
        pod["spec"]
    )
    for kind in ("initContainers", "containers"):
        if spec.get(kind) is not None:
            spec[kind] = [_container(container) for container in spec[kind]]
    return {**pod, "metadata": metadata, "spec": spec}


def _container(container: Object) -> dict[str, Any]:
    resources = dict(container.get("resources") or {})
    for section in ("limits", "requests"):
        if section in resources:
            resources[section] = {name: canonical(value) for name, value in (resources[section] or {}).items()}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    served = {
        **container,
        "imagePullPolicy": "Always",
        "resources": {key: value for key, value in resources.items() if value},
    }
    if container.get("env") is not None:
        served["env"] = [
            {key: value for key, value in variable.items() if value or key == "name"} for variable in container["env"]
        ]
    return served


def canonical(value: object) -> str:
    """A quantity as the API server writes it."""
    text = "0" if value is None else str(value)
    if isinstance(value, bool) or not _SERVABLE.fullmatch(text):
        raise NeverServedError(f"{text} is not a quantity")
    match = _SIMPLE.fullmatch(text)
    if match is None:  # an exponent, or a plus: kept
        return text
    sign, whole, decimals, unit = match.groups()
    number = Fraction(int(whole + (decimals or "") or 0), 10 ** len(decimals or ""))
    if unit.endswith("i"):
        return sign + _binary(number * 1024 ** ("KMGTPE".index(unit[0]) + 1))
    return sign + _decimal(number * Fraction(1000) ** _UNITS[unit])


def _binary(number: Fraction) -> str:
    if number.denominator != 1 or number < 1024:
        return _decimal(number)
    unit = ""
    mantissa = number.numerator
    for unit_above in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        if mantissa % 1024:
            break
        mantissa, unit = mantissa // 1024, unit_above
    return f"{mantissa}{unit}"


def _decimal(number: Fraction) -> str:
    thousandths = -(-number * 1000 // 1)
    if thousandths % 1000:
        return f"{thousandths}m"
    mantissa, unit = thousandths // 1000, ""
    for unit_above in ("k", "M", "G", "T", "P", "E"):
        if mantissa % 1000 or not mantissa:
            break
        mantissa, unit = mantissa // 1000, unit_above
    return f"{mantissa}{unit}"
