/** What the middleware does with a stream of the real SDK, whose model and memory are stand-ins. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@userascode/client";
import { simulateReadableStream, streamText, wrapLanguageModel } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { Memory, memoryMiddleware, type Message } from "@userascode/ai-sdk";

class Listener extends Memory {
  readonly turns: Message[][] = [];

  override brief(): Promise<string> {
    return Promise.resolve("Open alerts: rent is due");
  }

  override rememberTurn(messages: readonly Message[]): Promise<void> {
    this.turns.push([...messages]);
    return Promise.resolve();
  }
}

test("a streamed answer is briefed and remembered", async () => {
  const memory = new Listener("ada", { client: new Client({ url: "http://127.0.0.1:9", key: "k" }) });
  const model = new MockLanguageModelV4({
    doStream: async () => ({
      stream: simulateReadableStream({
        chunks: [
          { type: "text-start", id: "1" },
          { type: "text-delta", id: "1", delta: "On " },
          { type: "text-delta", id: "1", delta: "Friday." },
          { type: "text-end", id: "1" },
          {
            type: "finish",
            finishReason: { unified: "stop", raw: "stop" },
            usage: {
              inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
              outputTokens: { total: 1, text: 1, reasoning: 0 },
            },
          },
        ],
      }),
    }),
  });

  const { text } = streamText({
    model: wrapLanguageModel({ model, middleware: memoryMiddleware(memory) }),
    system: "Be kind.",
    prompt: "When do I fly?",
  });

  assert.equal(await text, "On Friday.");
  assert.deepEqual(memory.turns, [
    [
      { role: "user", text: "When do I fly?" },
      { role: "assistant", text: "On Friday." },
    ],
  ]);
  assert.deepEqual(model.doStreamCalls[0]?.prompt[0], {
    role: "system",
    content: "Be kind.\n\nOpen alerts: rent is due",
  });
});
