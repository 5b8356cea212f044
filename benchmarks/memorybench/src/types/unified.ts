/** What the provider needs of MemoryBench's `src/types/unified.ts`, for its type check here. */

export type UnifiedMessage = {
  role: "user" | "assistant"
  content: string
  timestamp?: string
  speaker?: string
}

export type UnifiedSession = {
  sessionId: string
  messages: UnifiedMessage[]
  metadata?: Record<string, unknown>
}
