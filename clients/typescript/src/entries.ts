/** Entries of the log: what a product or a conversation says of a user. */
import type { NewEntryRequest, NewRecordEntryRequest, NewTextEntryRequest } from "./api.js";

export type NewEntry = NewEntryRequest;
export type NewRecordEntry = NewRecordEntryRequest;
export type NewTextEntry = NewTextEntryRequest;

/**
 * Return a typed entry: a record of the class `type`, whose fields are `data`. A second one with
 * the same `key` changes the fields that it names.
 */
export function record(
  domain: string,
  type: string,
  data: Record<string, unknown>,
  options: Partial<NewRecordEntry> = {},
): NewRecordEntry {
  return { kind: "record", domain, type, data, ...options };
}

/** Return what somebody said: the user, or with another `role` the assistant. */
export function message(content: string, options: Partial<NewTextEntry> = {}): NewTextEntry {
  return { kind: "message", role: "user", content, ...options };
}

/** Return a statement about the user that needs no extraction. */
export function fact(content: string, options: Partial<NewTextEntry> = {}): NewTextEntry {
  return { kind: "fact", content, ...options };
}

/** Return a statement that overrides what the memory holds. */
export function correction(content: string, options: Partial<NewTextEntry> = {}): NewTextEntry {
  return { kind: "correction", content, ...options };
}
