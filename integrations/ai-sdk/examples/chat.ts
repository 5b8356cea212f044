/**
 * A chat with an agent of the Vercel AI SDK that has a memory: `node chat.js ada`. It needs
 * `npm install @userascode/ai-sdk @userascode/client ai @ai-sdk/openai-compatible`, and in the
 * environment UAC_URL, UAC_KEY, OPENAI_BASE_URL and OPENAI_API_KEY.
 */
import { createInterface } from "node:readline";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, type ModelMessage, wrapLanguageModel } from "ai";
import { Memory, memoryMiddleware, memoryTools } from "@userascode/ai-sdk";

const provider = createOpenAICompatible({
  name: "openai",
  baseURL: process.env.OPENAI_BASE_URL ?? "https://api.openai.com/v1",
  apiKey: process.env.OPENAI_API_KEY,
});
const memory = new Memory(process.argv[2] ?? "ada");
const model = wrapLanguageModel({
  model: provider(process.env.MODEL ?? "gpt-5-mini"),
  middleware: memoryMiddleware(memory),
});

const messages: ModelMessage[] = [];
for await (const line of createInterface({ input: process.stdin })) {
  messages.push({ role: "user", content: line });
  const result = await generateText({
    model,
    system: "You are a helpful assistant.",
    messages,
    tools: memoryTools(memory),
    stopWhen: isStepCount(5),
  });
  messages.push({ role: "assistant", content: result.text });
  console.log(result.text);
}
