/** What the provider needs of MemoryBench's `src/types/provider.ts`, for its type check here. */

import type { UnifiedSession } from "./unified"

export type ProviderConfig = { apiKey: string; baseUrl?: string } & Record<string, unknown>
export type IngestOptions = { containerTag: string }
export type IngestResult = { documentIds: string[]; taskIds?: string[] }
export type SearchOptions = { containerTag: string; limit?: number; threshold?: number }
export type IndexingProgressCallback = (progress: {
  completedIds: string[]
  failedIds: string[]
  total: number
}) => void

type AnswerPrompt = (question: string, context: unknown[], questionDate?: string) => string

export type Provider = {
  name: string
  prompts?: { answerPrompt?: string | AnswerPrompt }
  concurrency?: { default: number }
  initialize(config: ProviderConfig): Promise<void>
  ingest(sessions: UnifiedSession[], options: IngestOptions): Promise<IngestResult>
  awaitIndexing(
    result: IngestResult,
    containerTag: string,
    onProgress?: IndexingProgressCallback
  ): Promise<void>
  search(query: string, options: SearchOptions): Promise<unknown[]>
  clear(containerTag: string): Promise<void>
}
