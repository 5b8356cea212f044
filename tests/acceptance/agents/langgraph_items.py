"""What LangGraph's store does with items, run in an environment that has LangGraph."""

import asyncio
import json

from langgraph.store.base import InvalidNamespaceError
from userascode_agents.langgraph_store import UserAsCodeStore

PLACE = ("memories", "linus")

store = UserAsCodeStore()
shown = {}
# An unknown user, and two items of the same class, one of which loses a field
assert store.get(PLACE, "a") is None
store.put(PLACE, "a", {"food": "pizza", "since": "2026-05-31"})
first = store.get(PLACE, "a").value
store.put(PLACE, "a", {"food": "tea"})
store.put(PLACE, "b", {"food": "rice", "since": "some day", "rank": 2})
store.put(PLACE, "c", {"food": "none"})
store.delete(PLACE, "c")
last = store.get(PLACE, "c")
shown["values"] = [first, store.get(PLACE, "a").value, last and last.value]
assert store.get(PLACE, "b").value == {"food": "rice", "since": "some day", "rank": 2}
store.put(("old", "plans", "linus"), "x", {"to": "Rome"})
shown["found"] = [item.key for item in store.search(PLACE, query="tea")][:1]
shown["filtered"] = [item.key for item in store.search(PLACE, filter={"rank": {"$gte": 2}})]
pages = [store.search(PLACE, limit=1, offset=offset) for offset in range(3)]
shown["pages"] = [len(page) for page in pages]
shown["namespaces"] = store.list_namespaces(suffix=("linus",))
shown["refused"] = []
for namespace in (("Not A Name", "linus"), ("linus",)):
    try:
        store.put(namespace, "a", {})
    except InvalidNamespaceError:
        shown["refused"].append(namespace)
shown["asynchronous"] = asyncio.run(store.aget(PLACE, "a")).value
print(json.dumps(shown))
