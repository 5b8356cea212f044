"""MCP prompts, which a person picks in the client: each asks the model for what tools can do."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from memory.integrations.mcp.tools import Caller

_USER = PromptArgument(
    name="user_id", title="User", description="The user's id in the product.", required=True
)


class UnknownPrompt(ValueError):
    """There is no such prompt, or an argument is missing or unknown."""


@dataclass(frozen=True)
class Template:
    """A prompt: what a person reads in a menu, and what the model is asked then."""

    name: str
    title: str
    description: str
    text: str

    def offered(self, caller: Caller) -> Prompt:
        """Return the prompt in the form required by the protocol."""
        return Prompt(
            name=self.name,
            title=self.title,
            description=self.description,
            arguments=_arguments(caller),
        )


_ALL = (
    Template(
        "briefing",
        "What do you know about me?",
        "A summary of the memory, with what needs attention.",
        "What do you know about {user}? Read it with get_context and get_manifest, and summarize"
        " it in at most ten lines, by topic. Say what is uncertain or contradictory, and begin with"
        " the open alerts, if there are any. Ask what is wrong, and append each correction with"
        " add_memory.",
    ),
    Template(
        "attention",
        "What needs attention?",
        "Open alerts and those to come, with their evidence.",
        "What needs the attention of {user}? Get the open alerts with list_alerts and those to come"
        " with forecast. List them, most severe and soonest first: what it is, on which records and"
        " entries it is based, by when something has to be done, and a next step. Acknowledge an"
        " alert only if asked to.",
    ),
    Template(
        "save_conversation",
        "Remember this conversation",
        "Keep what was said so far and matters later.",
        "Keep what matters later for {user} from our conversation so far. Search the memory first"
        " and leave out what it has. Call add_memory once: records for what can be counted or"
        " compared, with the classes and keys of get_manifest; facts for the rest, one statement"
        " each, with full dates; corrections for what the memory has wrong. Then list what you"
        " added, with the numbers of the entries.",
    ),
)
PROMPTS: Mapping[str, Template] = {prompt.name: prompt for prompt in _ALL}


def get(caller: Caller, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
    """Return the messages of a prompt; raises UnknownPrompt."""
    if (template := PROMPTS.get(name)) is None:
        raise UnknownPrompt(f"There is no prompt {name!r:.120}. They are: {', '.join(PROMPTS)}.")
    wanted = {argument.name for argument in _arguments(caller)}
    if wanted != set(arguments):
        names = ", ".join(wanted) or "none"
        raise UnknownPrompt(f"The arguments of this prompt are: {names}.")
    user = f"the user {arguments['user_id']!r}" if wanted else "me, the user of this connection"
    content = TextContent(type="text", text=template.text.format(user=user))
    return GetPromptResult(
        description=template.description, messages=[PromptMessage(role="user", content=content)]
    )


def _arguments(caller: Caller) -> list[PromptArgument]:
    return [_USER] if caller.user_id is None else []
