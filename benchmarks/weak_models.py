"""Models that understand nothing: a parrot, and recorded answers."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.weak_state import (
    COLLECTIONS,
    NSAID,
    PASSPORT,
    PASSPORT_TESTS,
    RULES,
    TRUE,
    add_record,
    update_record,
    write_rule,
)
from tests.llm_server import Called, Request, Said


@dataclass
class Parrot:
    """A model that calls tools with random snippets of its prompt."""

    chance: random.Random

    def __call__(self, request: Request) -> Said:
        """Answer with one to three tool calls whose arguments fit the tools' schemas."""
        shown = request.text if len(request.body["messages"]) < 3 else self._newest(request)
        tools = {tool["function"]["name"]: tool["function"] for tool in request.body["tools"]}
        calls = []
        for _ in range(self.chance.randint(1, 3)):
            names = [*tools, *(["edit", "edit", "finish"] if "edit" in tools else [])]
            name = self.chance.choice(names)
            arguments = (
                {"edits": [self._edit(shown) for _ in range(self.chance.randint(1, 3))]}
                if name == "edit"
                else self._value(tools[name]["parameters"], shown)
            )
            if name == "remember":
                arguments["facts"] = [f"[{self._number(shown)}] {self._snatch(shown)}"]
                if "edits" in tools[name]["parameters"]["properties"]:
                    arguments["edits"] = [self._edit(shown)]
            calls.append(Called(name, arguments))
        return Said(calls=tuple(calls))

    def _newest(self, request: Request) -> str:
        messages = request.body["messages"]
        return json.dumps([messages[1], *messages[-2:]], ensure_ascii=False)

    def _snatch(self, shown: str, most: int = 9) -> str:
        words = re.findall(r"[^\s\"\\]+", shown)
        number = self.chance.randint(1, most)
        start = self.chance.randrange(max(1, len(words) - number))
        return " ".join(words[start : start + number])

    def _number(self, shown: str) -> int:
        numbers = re.findall(r"\[(\d{1,3})\]", shown) or ["1"]
        return int(self.chance.choice(numbers))

    def _value(self, schema: Mapping[str, Any], shown: str) -> Any:
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        if "anyOf" in schema:  # a list, which comes first, or changes to it
            return self._value(schema["anyOf"][0], shown)
        match schema.get("type"):
            case "object":
                required = schema.get("required", [])
                return {
                    name: self._value(one, shown)
                    for name, one in schema.get("properties", {}).items()
                    if name in required or self.chance.random() < 0.3
                }
            case "array":
                least = max(1, schema.get("minItems", 0))
                return [
                    self._value(schema.get("items", {}), shown)
                    for _ in range(self.chance.randint(least, least + 2))
                ]
            case "integer":
                return self._number(shown)
            case "boolean":
                return self.chance.random() < 0.5
            case _:
                return self._snatch(shown)

    def _edit(self, shown: str) -> dict[str, Any]:
        domain, kind, key, data = self.chance.choice(TRUE)
        fields = self.chance.sample([*data], self.chance.randint(1, len(data)))
        where = {"domain": domain, "collection": COLLECTIONS[kind]}
        sources = [self._number(shown) for _ in range(self.chance.randint(1, 2))]
        values = {name: self._field(data[name], shown) for name in fields}
        word = re.sub(r"\W+", "_", self._snatch(shown, 1)).strip("_").lower() or "x"
        known: list[dict[str, Any]] = [
            {"op": "update", **where, "key": key, "fields": values},
            {"op": "add", "domain": domain, "class_name": kind, "fields": {
                name: self._field(value, shown) for name, value in data.items()
            }},
            {"op": "retire", **where, "key": key, "reason": self._snatch(shown)},
            {"op": "note", "text": self._snatch(shown, 14)},
            {"op": "dismiss", "reason": self._snatch(shown)},
            {"op": "define_class", "domain": word, "name": word.capitalize(), "fields": [
                {"name": "text", "type": "str"}
            ]},
            {"op": "rename_field", "domain": domain, "class_name": kind, "name": fields[0],
             "new_name": word},
            {"op": "delete_constraint", "name": self.chance.choice([*RULES])},
        ]  # fmt: skip
        edit = self.chance.choice(known)
        if edit["op"] in ("update", "add", "note") and self.chance.random() < 0.2:
            named = [*edit.get("fields", {"text": ""})]
            edit["derived"] = {name: self._snatch(shown) for name in named}
        return {**edit, "sources": sources}

    def _field(self, value: Any, shown: str) -> Any:
        if isinstance(value, int):
            return self._number(shown)
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            days = re.findall(r"\d{4}-\d\d-\d\d", shown) or [value]
            return self.chance.choice(days)
        return self._snatch(shown, 3)


def scripted(*answers: Sequence[tuple[str, Mapping[str, Any]]]) -> Callable[[Request], Said]:
    """Return a model that gives these answers in order, and then repeats the last one."""

    def reply(request: Request) -> Said:
        given = sum(message["role"] == "assistant" for message in request.body["messages"])
        calls = answers[min(given, len(answers) - 1)]
        known = [tool["function"]["name"] for tool in request.body["tools"]]
        chosen = [Called(name, arguments) for name, arguments in calls if name in known]
        return Said(calls=tuple(chosen)) if chosen else Said(text="Sure! I have done that.")

    return reply


# A weak model's answers, in order; each is a list of tool calls.
Answers = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]


def _facts(*facts: tuple[str, Sequence[int]]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    told = [{"text": text, "sources": list(sources)} for text, sources in facts]
    return [("remember", {"facts": told})]


def _edits(*edits: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    return [("edit", {"edits": list(edits)}), ("finish", {})]


NEXT = 9  # the number of the first message, which follows the true records in the log
WEAK: Mapping[str, Answers] = {
    "the example": (
        _edits({**write_rule("expiring_passport", PASSPORT, PASSPORT_TESTS), "sources": [9]}),
    ),
    "what anybody might say": (
        _facts(("The user likes music.", [NEXT]), ("The user is a student.", [NEXT])),
    ),
    "by types": (
        _facts(("string", [NEXT])),
        _edits(
            {
                **add_record("Trip", "string", to="string", ends_on="2026-01-01", cost=0),
                "sources": [9],
            }
        ),
    ),
    "nothing": ([("remember", {"facts": []})], _edits()),
    "dismisses all": (
        _edits({"op": "dismiss", "reason": "nothing", "sources": list(range(9, 40))}),
    ),
    "overwrites": (
        _edits(
            *(
                {**update_record("Allergy", key, allergen="none"), "sources": [9]}
                for key in ("pen", "nuts")
            )
        ),
    ),
    "echoes the manifest": (
        _facts(("allergies: 2 Allergy(allergen, drug_class, person)", [NEXT])),
        _edits({"op": "note", "text": "health: allergies, medications", "sources": [9]}),
    ),
    "echoes the instructions": (
        _facts(("One fact is one statement that stays understandable.", [NEXT])),
    ),
    "no tool": ([],),
    "asks to check": ([("check", {}), ("check", {})],),
    "wrong numbers": (_facts(("Paul likes jazz.", [777])), _edits(NSAID | {"sources": [777]})),
    "mixes them up": (
        _facts(("Ada is allergic to jazz and takes pasta for it since 2026-05-09.", [NEXT])),
        _edits(
            {**update_record("Allergy", "nuts", person="jazz", drug_class="pasta"), "sources": [9]}
        ),
    ),
}
