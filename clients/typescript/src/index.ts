/** Client of UaC (User as Code), a memory for AI agents that computes. */
export { Alerts } from "./alerts.js";
export type * as models from "./api.js";
export { Client, type ClientOptions } from "./client.js";
export {
  correction,
  fact,
  message,
  type NewEntry,
  type NewRecordEntry,
  type NewTextEntry,
  record,
} from "./entries.js";
export * from "./errors.js";
export * as problems from "./problems.js";
export { etagOf, Pages } from "./transport.js";
export type * from "./types.js";
export { User } from "./user.js";
export { verifyWebhook } from "./webhooks.js";
