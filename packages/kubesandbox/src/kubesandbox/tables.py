"""Objects as the tables that kubectl prints: one function per type makes the cells, custom resources have printer columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import durations, jsonpath, tables_apps, tables_core, tables_pods
from kubesandbox.table_columns import Column, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.catalog import Served

Object = dict[str, Any]

_NAME: Final = Column("Name")
_AGE: Final = Column("Age")
_CREATED_AT: Final = frozenset({"roles", "clusterroles", "customresourcedefinitions"})


@dataclass(frozen=True, slots=True)
class Layout:
    """Say which columns a type has and how an object fills them; `cells` also gets the present in unix seconds."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, float], Row]


def render(served: Served, objects: list[Object], now: float, rows_hold: str) -> Object:
    """Return a meta.k8s.io/v1 Table; `rows_hold` is None, Metadata or Object: what each row brings of its object."""
    layout = _layout(served)
    rows = [{"cells": list(layout.cells(obj, now)), "object": _embedded(served, obj, rows_hold)} for obj in objects]
    meta = {"resourceVersion": objects[0]["metadata"]["resourceVersion"]} if len(objects) == 1 else {}
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
            "columnDefinitions": [column.definition() for column in layout.columns], "rows": rows}


def _embedded(served: Served, obj: Object, rows_hold: str) -> Object | None:
    if rows_hold == "Object":
        return served.show(obj)
    if rows_hold == "None":
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _layout(served: Served) -> Layout:
    if served.columns:
        return _custom(served.columns)
    known = _LAYOUTS.get(served.storage_key)
    if known is not None:
        return Layout(*known)
    if served.resource.plural in _CREATED_AT:
        return Layout((_NAME, Column("Created At")), lambda obj, _: _named(obj, obj["metadata"]["creationTimestamp"]))
    return Layout((_NAME, _AGE), lambda obj, now: _named(obj, durations.since(obj["metadata"]["creationTimestamp"], now)))


def _named(obj: Object, *more: Any) -> Row:
    return (obj["metadata"]["name"], *more)


def _custom(columns: tuple[Object, ...]) -> Layout:
    def cells(obj: Object, now: float) -> Row:
        return _named(obj, *(_cell(column, obj, now) for column in columns))

    described = [Column(column["name"], column["type"], column.get("priority", 0), column.get("format", ""),
                        column.get("description", "")) for column in columns]
    return Layout((_NAME, *described), cells)


def _cell(column: Object, obj: Object, now: float) -> Any:
    found = jsonpath.find(column["jsonPath"], obj)
    if not found or found[0] is None:
        return None
    value = found[0]
    if column["type"] == "date":
        return durations.since(str(value), now)
    if column["type"] == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if not isinstance(value, list) else str(value).replace("'", '"')
    if column["type"] == "boolean":
        return value if isinstance(value, bool) else None
    return value if isinstance(value, (int, float)) else None


_LAYOUTS: Final[dict[str, tuple[tuple[Column, ...], Callable[[Object, float], Row]]]] = {
    "pods": (tables_pods.COLUMNS, tables_pods.cells), **tables_core.LAYOUTS, **tables_apps.LAYOUTS,
}
