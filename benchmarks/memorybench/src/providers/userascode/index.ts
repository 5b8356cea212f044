/** A provider for MemoryBench that runs against a server of UaC; see the README. */

import type {
  IndexingProgressCallback,
  IngestOptions,
  IngestResult,
  Provider,
  ProviderConfig,
  SearchOptions,
} from "../../types/provider"
import type { UnifiedMessage, UnifiedSession } from "../../types/unified"

const POLL_MS = 250
const ATTEMPTS = 8
const BUSY = new Set([429, 502, 503, 504])
/** The most entries that one request appends. */
const BATCH = 500

interface Message {
  kind: "message"
  content: string
  role: string
  speaker?: string
  session_id: string
  occurred_at?: string
  idempotency_key: string
}

interface Context {
  text: string
  meaning: { problem: string | null } | null
}

interface User {
  entries: { pending: number }
  structure: { state: string; reason: string }
}

/** The answer prompt: the context is one block of text, whose lines have their dates. */
function answerPrompt(question: string, results: unknown[], questionDate?: string): string {
  const texts = results.map((one) => (one as { text: string }).text)
  return [
    "Answer the question from what is known about a user, in the text below. Answer briefly, with",
    "every point that is asked for. Resolve relative dates by the date of their line. If the text",
    "does not say it, say that you do not know.",
    "",
    ...texts,
    "",
    ...(questionDate ? [`Today is ${questionDate}.`] : []),
    `Question: ${question}`,
  ].join("\n")
}

export class UserAsCodeProvider implements Provider {
  name = "userascode"
  prompts = { answerPrompt }
  concurrency = { default: 4 }

  private apiKey = ""
  private baseUrl = "http://127.0.0.1:8000"
  private tokens = 2000

  async initialize(config: ProviderConfig): Promise<void> {
    this.apiKey = config.apiKey
    if (config.baseUrl) this.baseUrl = config.baseUrl.replace(/\/+$/, "")
    if (config.tokens !== undefined) this.tokens = Number(config.tokens)
    if (!this.apiKey) throw new Error("userascode: set UAC_API_KEY to a key with the scopes of README")
    if (!(this.tokens >= 1)) throw new Error("userascode: UAC_CONTEXT_TOKENS must be a number")
  }

  /** Append each session's messages. The same session may be sent again: it is stored once. */
  async ingest(sessions: UnifiedSession[], options: IngestOptions): Promise<IngestResult> {
    const user = options.containerTag
    await this.send("POST", "users/", { user_id: user, time_zone: "UTC" }, [409])
    const documentIds: string[] = []
    for (const session of sessions) {
      const entries = entriesOf(session)
      for (let start = 0; start < entries.length; start += BATCH) {
        const body = { entries: entries.slice(start, start + BATCH) }
        const path = `users/${encodeURIComponent(user)}/entries/`
        const appended = (await this.send("POST", path, body)) as { entries: { id: string }[] }
        documentIds.push(...appended.entries.map((entry) => entry.id))
      }
    }
    return { documentIds }
  }

  /**
   * Wait until all messages can be found by meaning and, if the server has a language model, until
   * it has remembered them. Without one, the messages themselves are what contexts consist of.
   */
  async awaitIndexing(
    result: IngestResult,
    containerTag: string,
    onProgress?: IndexingProgressCallback
  ): Promise<void> {
    const total = result.documentIds.length
    onProgress?.({ completedIds: [], failedIds: [], total })
    while (total > 0 && !(await this.isIndexed(containerTag))) await sleep(POLL_MS)
    onProgress?.({ completedIds: result.documentIds, failedIds: [], total })
  }

  private async isIndexed(containerTag: string): Promise<boolean> {
    const user = `users/${encodeURIComponent(containerTag)}/`
    const { entries, structure } = (await this.send("GET", user)) as User
    if (entries.pending > 0 && structure.state !== "stopped") return false
    const context = (await this.send("POST", `${user}context/`, { query: "indexed?" })) as Context
    return context.meaning === null || context.meaning.problem === null
  }

  /** Return the context for a question as one result; `limit` does not apply to it, a budget does. */
  async search(query: string, options: SearchOptions): Promise<unknown[]> {
    const path = `users/${encodeURIComponent(options.containerTag)}/context/`
    const context = (await this.send("POST", path, { query, tokens: this.tokens })) as Context
    return context.text ? [{ text: context.text }] : []
  }

  async clear(containerTag: string): Promise<void> {
    const path = `users/${encodeURIComponent(containerTag)}/?reason=cleared+by+MemoryBench`
    await this.send("DELETE", path, undefined, [404])
  }

  /** Send a request to the API; return its JSON. Statuses in `fine` are no errors. */
  private async send(
    method: string,
    path: string,
    body?: unknown,
    fine: number[] = []
  ): Promise<unknown> {
    for (let attempt = 1; ; attempt++) {
      const response = await fetch(`${this.baseUrl}/v1/${path}`, {
        method,
        headers: { Authorization: `Bearer ${this.apiKey}`, "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
      })
      const text = await response.text()
      if (response.ok || fine.includes(response.status)) return text ? JSON.parse(text) : null
      if (!BUSY.has(response.status) || attempt === ATTEMPTS) {
        throw new Error(`userascode: ${method} ${path} answered ${response.status}: ${text}`)
      }
      await sleep(1000 * Number(response.headers.get("Retry-After") ?? 2 ** attempt / 4))
    }
  }
}

function entriesOf(session: UnifiedSession): Message[] {
  const day = session.metadata?.date
  return session.messages
    .map((message, index) => entryOf(session.sessionId, message, index, day))
    .filter((entry) => entry.content.trim())
}

function entryOf(session: string, message: UnifiedMessage, index: number, day: unknown): Message {
  const at = new Date(String(message.timestamp ?? day ?? ""))
  // Messages of a session follow each other, also where only the session has a date.
  if (message.timestamp === undefined) at.setSeconds(at.getSeconds() + index)
  return {
    kind: "message",
    content: message.content,
    role: message.role,
    ...(message.speaker ? { speaker: message.speaker } : {}),
    session_id: session,
    ...(Number.isNaN(at.getTime()) ? {} : { occurred_at: at.toISOString() }),
    idempotency_key: `${session}/${index}`,
  }
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}

export default UserAsCodeProvider
