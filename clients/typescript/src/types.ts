/** The types of requests and answers, looked up in the API's document by method and path. */
import type { paths } from "./api.js";

export type Path = keyof paths;
export type Method = "get" | "post" | "put" | "patch" | "delete";

type Operation<P extends Path, M extends Method> = NonNullable<paths[P][M]>;
type None = Record<never, never>;
type OrNone<T> = [NonNullable<T>] extends [never] ? None : NonNullable<T>;

/** The parameters in the path of an operation. */
export type Names<P extends Path, M extends Method> =
  Operation<P, M> extends { parameters: { path?: infer T } } ? OrNone<T> : None;

/** The query parameters of an operation. */
export type Query<P extends Path, M extends Method> =
  Operation<P, M> extends { parameters: { query?: infer T } } ? OrNone<T> : None;

/** The JSON body of an operation. */
export type Body<P extends Path, M extends Method> =
  Operation<P, M> extends { requestBody?: infer T }
    ? NonNullable<T> extends { content: { "application/json": infer B } }
      ? B
      : None
    : None;

type Content<T> = T extends { content: infer C } ? C[keyof C] : undefined;

/** What an operation returns in the end: not the run that a 202 shows while it goes on. */
export type Answer<P extends Path, M extends Method> =
  Operation<P, M> extends { responses: infer R }
    ? R extends { 200: infer T }
      ? Content<T>
      : R extends { 201: infer T }
        ? Content<T>
        : R extends { 202: infer T }
          ? Content<T>
          : undefined
    : never;

/** What a list has on its pages. */
export type Item<P extends Path> =
  Required<Answer<P, "get">> extends { records: (infer T)[] }
    ? T
    : Required<Answer<P, "get">> extends { results: (infer T)[] }
      ? T
      : never;

/** The filters of a list; its pages are turned by the client. */
export type Filters<P extends Path> = Omit<Query<P, "get">, "cursor" | "page">;

/** How long to wait for an operation that takes time, and what ends the waiting early. */
export interface Waiting {
  timeoutSeconds?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** `ifMatch`: the change is made only if the resource still has this ETag (`etagOf`). */
export interface Matching {
  ifMatch?: string | undefined;
}
