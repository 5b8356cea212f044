"""LangGraph: a `BaseStore` whose items are typed records of the user.

So constraints and queries see them, and a search finds them by words and meaning. An item is read
as it was put; a failure is raised, as by other stores.
"""

import asyncio
import operator
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from langgraph.store import base
from userascode import Client, User, models, problems

from userascode_agents.memory import MAX_QUERY, Memory, default_client

# The domain of the records, and what joins the labels of a namespace to a collection's name.
DOMAIN = "store"
SEPARATOR = "__"
# Seconds until what is put can be read; maximum number of hits of a search.
WAIT = 25.0
MAX_HITS = 100
_LABEL = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NAMES = {"$eq": "eq", "$ne": "ne", "$gt": "gt", "$gte": "ge", "$lt": "lt", "$lte": "le"}
_COMPARISONS = {sign: getattr(operator, name) for sign, name in _NAMES.items()}

Namespace = tuple[str, ...]


class UserAsCodeStore(base.BaseStore):
    """Keeps items in the memory of a user, whose id is one label of each namespace.

    `user_at` is the place of that label; the others, of which an item needs at least one, are lower
    case names. The item `"a"` of `("memories", "ada")` is a record of Ada's collection
    `store.memories`, with the key `a`. Namespaces are listed for one user.
    """

    def __init__(self, client: Client | None = None, *, user_at: int = -1) -> None:
        self._client = client or default_client()
        self._user_at = user_at

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run operations in order."""
        return [self._run(op) for op in ops]

    async def abatch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Run operations in order, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _run(self, op: base.Op) -> base.Result:
        match op:
            case base.GetOp():
                user, collection = self._place_of_item(op.namespace)
                record = _records(user, collection).get(op.key)
                return base.Item(**_item(user, record, op.namespace)) if record else None
            case base.PutOp():
                return self._put(op)
            case base.SearchOp():
                fitting = (one for one in self._search(op) if _fits(one["value"], op.filter or {}))
                page = islice(fitting, op.offset, op.offset + op.limit)
                return [base.SearchItem(**one) for one in page]
            case base.ListNamespacesOp():
                return self._list_namespaces(op)

    def _put(self, op: base.PutOp) -> None:
        user, collection = self._place_of_item(op.namespace)
        type_name = "".join(map(str.capitalize, collection.split("_"))) + "Item"
        place = {"kind": "record", "domain": DOMAIN, "collection": collection, "key": op.key}
        entries: list[Any] = []
        # A put replaces the whole item, while a record keeps the fields that an entry leaves out.
        if op.key in _records(user, collection):
            entries.append({**place, "type": type_name, "retired": True})
        if op.value is not None:
            metadata = {"store": collection, "key": op.key}
            entries.append({**place, "type": type_name, "data": op.value, "metadata": metadata})
        if entries:
            Memory(user.user_id, client=self._client).send(lambda: user.add(*entries, wait=WAIT))

    def _search(self, op: base.SearchOp) -> Iterator[dict[str, Any]]:
        """Yield the items of all namespaces with the prefix: those found, or all."""
        user, _ = self._place(op.namespace_prefix)
        for namespace in self._namespaces_of(user):
            if namespace[: len(op.namespace_prefix)] != op.namespace_prefix:
                continue
            _, collection = self._place(namespace)
            records = _records(user, collection)
            if not op.query:
                yield from (_item(user, record, namespace) for record in records.values())
                continue
            where: Any = {"kind": "record", "metadata.store": collection}
            for hit in user.search(op.query[:MAX_QUERY], filters=where, top_k=MAX_HITS).hits:
                record = records.get((hit.metadata or {})["key"])
                if record and max(record.sources) == hit.seq:
                    yield {**_item(user, record, namespace), "score": hit.score}

    def _list_namespaces(self, op: base.ListNamespacesOp) -> list[Namespace]:
        ends = {one.match_type: tuple(one.path) for one in op.match_conditions or ()}
        user, _ = self._place(ends.get("suffix" if self._user_at < 0 else "prefix", ()))
        found = {
            namespace[: op.max_depth]
            for namespace in self._namespaces_of(user)
            if _matches(namespace, ends.get("prefix", ()))
            and _matches(namespace[::-1], ends.get("suffix", ())[::-1])
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _namespaces_of(self, user: User) -> list[Namespace]:
        try:
            collections = user.state().domains[DOMAIN].collections
        except (problems.NotFound, KeyError):
            return []
        namespaces = []
        for labels in (name.split(SEPARATOR) for name in collections):
            at = self._user_at if self._user_at >= 0 else len(labels) + 1 + self._user_at
            namespaces.append((*labels[:at], user.user_id, *labels[at:]))
        return namespaces

    def _place_of_item(self, namespace: Namespace) -> tuple[User, str]:
        user, collection = self._place(namespace)
        if not collection:
            raise base.InvalidNamespaceError(
                f"{namespace}: add a label to the user's, as in ('memories', 'ada')"
            )
        return user, collection

    def _place(self, namespace: Namespace) -> tuple[User, str]:
        """Return the user of a namespace, and the collection that its other labels name."""
        labels = list(namespace)
        try:
            user_id = labels.pop(self._user_at)
        except IndexError:
            raise base.InvalidNamespaceError(f"{namespace}: name the user") from None
        if wrong := [one for one in labels if not _LABEL.fullmatch(one)]:
            raise base.InvalidNamespaceError(f"{wrong[0]!r}: write labels like 'trip_plans'")
        return self._client.user(user_id), SEPARATOR.join(labels)


def _records(user: User, collection: str) -> dict[str, models.TypedRecord]:
    try:
        return {record.key: record for record in user.records(f"{DOMAIN}.{collection}")}
    except problems.NotFound:
        return {}


def _item(user: User, record: models.TypedRecord, namespace: Namespace) -> dict[str, Any]:
    """Return the arguments of an item: the value that was put, unless something else changed it."""
    entry = user.entries.get(max(record.sources))
    value = entry.data["data"] if entry.data is not None else record.fields
    times = {"created_at": entry.recorded_at, "updated_at": entry.recorded_at}
    return {"namespace": namespace, "key": record.key, "value": value, **times}


def _fits(value: dict[str, Any], conditions: dict[str, Any]) -> bool:
    for name, wanted in conditions.items():
        has_signs = isinstance(wanted, dict) and wanted.keys() <= _COMPARISONS.keys()
        for sign, operand in (wanted if has_signs else {"$eq": wanted}).items():
            if name not in value or not _COMPARISONS[sign](value[name], operand):
                return False
    return True


def _matches(labels: Namespace, beginning: Namespace) -> bool:
    pairs = zip(labels, beginning, strict=False)
    return len(beginning) <= len(labels) and all(want in ("*", label) for label, want in pairs)
