/** UaC's memory for the Vercel AI SDK: middleware for a model, and tools. */
import { jsonSchema, type LanguageModelMiddleware, type ToolSet, tool } from "ai";
import { Memory, type Message } from "./memory.js";

export { Memory, type MemoryOptions, type Message } from "./memory.js";

type Call = Parameters<NonNullable<LanguageModelMiddleware["wrapGenerate"]>>[0]["params"];
type Prompt = Call["prompt"];

/**
 * Return middleware that puts context and alerts into each call of a model, and remembers the
 * exchange when it has answered: `wrapLanguageModel({ model, middleware: memoryMiddleware(memory) })`.
 */
export function memoryMiddleware(memory: Memory): LanguageModelMiddleware {
  const remember = (prompt: Prompt, answer: string) =>
    answer.trim()
      ? memory.rememberTurn([...conversation(prompt), { role: "assistant", text: answer.trim() }])
      : Promise.resolve();
  return {
    specificationVersion: "v4",
    async transformParams({ params }) {
      const brief = await memory.brief(conversation(params.prompt));
      return brief ? { ...params, prompt: briefed(params.prompt, brief) } : params;
    },
    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      const calls = result.content.some((part) => part.type === "tool-call");
      const texts = result.content.map((part) => (part.type === "text" ? part.text : ""));
      if (!calls) await remember(params.prompt, texts.join(""));
      return result;
    },
    async wrapStream({ doStream, params }) {
      const { stream, ...rest } = await doStream();
      let text = "";
      let calls = false;
      type Part = typeof stream extends ReadableStream<infer One> ? One : never;
      const heard = new TransformStream<Part, Part>({
        transform(part, controller) {
          if (part.type === "text-delta") text += part.delta;
          calls ||= part.type === "tool-call";
          controller.enqueue(part);
        },
        async flush() {
          if (!calls) await remember(params.prompt, text);
        },
      });
      return { stream: stream.pipeThrough(heard), ...rest };
    },
  };
}

/** Return the tools: remember, recall, compute, alerts. */
export function memoryTools(memory: Memory): ToolSet {
  return {
    remember: tool({
      description:
        "Remember a fact about the user that must not be lost. What is said is remembered anyway.",
      inputSchema: argument(
        "text",
        "One self-contained statement, such as 'Ada is allergic to penicillin'.",
      ),
      execute: ({ text }) => memory.remember(text),
    }),
    recall: tool({
      description: "Find what was said or recorded about the user, by words and by meaning.",
      inputSchema: argument("query", "A question or words. Ask for one thing at a time."),
      execute: ({ query }) => memory.recall(query),
    }),
    compute: tool({
      description:
        "Compute an exact answer from the user's records with Python, and return its evidence. Use" +
        " it to count, add up, compare or list. Collections are lists of records, available under" +
        " their names, such as `trips`; `today`, `date`, `timedelta` and `Counter` are available too.",
      inputSchema: argument("code", "An expression, such as `sum(trip.cost for trip in trips)`."),
      execute: ({ code }) => memory.compute(code),
    }),
    alerts: tool({
      description: "List what is wrong or due for the user now, and what will be if nothing changes.",
      inputSchema: jsonSchema<object>({ type: "object", properties: {} }),
      execute: () => memory.alerts(),
    }),
  };
}

function argument<Name extends string>(name: Name, description: string) {
  return jsonSchema<Record<Name, string>>({
    type: "object",
    properties: { [name]: { type: "string", description } },
    required: [name],
    additionalProperties: false,
  });
}

/** Return what user and assistant said, without tool calls, their results and prompts. */
function conversation(prompt: Prompt): Message[] {
  return prompt.flatMap((one) => {
    if (one.role !== "user" && one.role !== "assistant") return [];
    const parts = one.content.map((part) => (part.type === "text" ? part.text : ""));
    const said = parts.filter(Boolean).join("\n").trim();
    return said ? [{ role: one.role, text: said }] : [];
  });
}

/** Return a prompt whose system message ends with the brief. */
function briefed(prompt: Prompt, brief: string): Prompt {
  const [first, ...others] = prompt;
  if (first?.role !== "system") return [{ role: "system", content: brief }, ...prompt];
  return [{ ...first, content: `${first.content}\n\n${brief}` }, ...others];
}
