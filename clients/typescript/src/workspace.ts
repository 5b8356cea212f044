/** What belongs to a whole workspace. */
import type * as models from "./api.js";
import type { Pages, Transport } from "./transport.js";
import type { Body, Filters, Matching, Query, Waiting } from "./types.js";

/** The classes that the workspace prescribes for the projects of all users. */
export class Schema {
  constructor(private readonly transport: Transport) {}

  /** Return the modules, by domain. */
  get(): Promise<models.PrescribedClasses> {
    return this.transport.fetch("get", "/v1/schema", {});
  }

  /** Prescribe the classes of these modules of Python, by domain. */
  put({
    ifMatch,
    ...body
  }: Body<"/v1/schema", "put"> & Matching): Promise<models.PrescribedClasses> {
    return this.transport.fetch("put", "/v1/schema", { body, ifMatch });
  }
}

/** The users of a workspace. */
export class Users {
  constructor(private readonly transport: Transport) {}

  /** Return the users, newest first. */
  list(query: Filters<"/v1/users"> = {}): Pages<models.User> {
    return this.transport.pages("/v1/users", { query });
  }

  /** Create a user with an empty log. */
  create(body: Body<"/v1/users", "post">): Promise<models.UserDetail> {
    return this.transport.fetch("post", "/v1/users", { body });
  }
}

/** Constraints for all users: written, backtested, approved and rolled out. */
export class WorkspaceConstraints {
  constructor(private readonly transport: Transport) {}

  /** Return the workspace's constraints. */
  list(query: Filters<"/v1/constraints"> = {}): Pages<models.WorkspaceConstraint> {
    return this.transport.pages("/v1/constraints", { query });
  }

  /** Return a constraint with its versions. */
  get(name: string): Promise<models.WorkspaceConstraintDetail> {
    return this.transport.fetch("get", "/v1/constraints/{name}", { names: { name } });
  }

  /** Create a constraint, from its source or from the library. */
  create({
    wait,
    ...body
  }: Body<"/v1/constraints", "post"> &
    Query<"/v1/constraints", "post">): Promise<models.WorkspaceConstraintDetail> {
    return this.transport.fetch("post", "/v1/constraints", { query: { wait }, body });
  }

  /** Switch a constraint on or off, for all users or for a part of them. */
  change(
    name: string,
    { ifMatch, ...body }: Body<"/v1/constraints/{name}", "patch"> & Matching,
  ): Promise<models.WorkspaceConstraintDetail> {
    const parts = { names: { name }, body, ifMatch };
    return this.transport.fetch("patch", "/v1/constraints/{name}", parts);
  }

  /** Return for how many users a constraint applies. */
  coverage(
    name: string,
    query: Query<"/v1/constraints/{name}/coverage", "get"> = {},
  ): Promise<models.ConstraintCoverage> {
    return this.transport.fetch("get", "/v1/constraints/{name}/coverage", { names: { name }, query });
  }

  /** Write a new version, which waits for its approval. */
  addVersion(
    name: string,
    {
      wait,
      ...body
    }: Body<"/v1/constraints/{name}/versions", "post"> &
      Query<"/v1/constraints/{name}/versions", "post">,
  ): Promise<models.VersionDetail> {
    const parts = { names: { name }, query: { wait }, body };
    return this.transport.fetch("post", "/v1/constraints/{name}/versions", parts);
  }

  /** Return a version with its source and its verdict. */
  version(name: string, number: number): Promise<models.VersionDetail> {
    const names = { name, number };
    return this.transport.fetch("get", "/v1/constraints/{name}/versions/{number}", { names });
  }

  /** Make a version the one that runs. */
  approve(name: string, number: number): Promise<models.WorkspaceConstraintDetail> {
    const names = { name, number };
    return this.transport.fetch("post", "/v1/constraints/{name}/versions/{number}/approve", { names });
  }

  /** Start to run a version on the past of a sample of users. */
  backtest(
    name: string,
    number: number,
    body: Partial<Body<"/v1/constraints/{name}/versions/{number}/backtests", "post">> = {},
  ): Promise<models.BacktestDetail> {
    const path = "/v1/constraints/{name}/versions/{number}/backtests";
    return this.transport.fetch("post", path, { names: { name, number }, body });
  }

  /** Return the constraints that the server brings along. */
  library(query: Filters<"/v1/constraint-library"> = {}): Pages<models.LibraryConstraint> {
    return this.transport.pages("/v1/constraint-library", { query });
  }

  /** Return a constraint of the library with its source and tests. */
  libraryConstraint(name: string): Promise<models.LibraryConstraintDetail> {
    return this.transport.fetch("get", "/v1/constraint-library/{name}", { names: { name } });
  }

  /** Return how useful each constraint's alerts were, by the feedback on them. */
  precision(query: Filters<"/v1/constraint-precision"> = {}): Pages<models.ConstraintPrecision> {
    return this.transport.pages("/v1/constraint-precision", { query });
  }

  /** Return the constraints that were paused because they alerted too much. */
  paused(query: Filters<"/v1/paused-constraints"> = {}): Pages<models.PausedConstraint> {
    return this.transport.pages("/v1/paused-constraints", { query });
  }

  /** Let a paused constraint alert again. */
  resume(
    pausedId: string,
    body: Body<"/v1/paused-constraints/{paused_id}/resume", "post">,
  ): Promise<models.PausedConstraint> {
    const parts = { names: { paused_id: pausedId }, body };
    return this.transport.fetch("post", "/v1/paused-constraints/{paused_id}/resume", parts);
  }
}

/** Constraints that ran on the past. */
export class Backtests {
  constructor(private readonly transport: Transport) {}

  /** Return the backtests, newest first. */
  list(query: Filters<"/v1/backtests"> = {}): Pages<models.Backtest> {
    return this.transport.pages("/v1/backtests", { query });
  }

  /** Return a backtest with its findings; `finished_at` is null while it runs. */
  get(backtestId: string): Promise<models.BacktestDetail> {
    const names = { backtest_id: backtestId };
    return this.transport.fetch("get", "/v1/backtests/{backtest_id}", { names });
  }

  /** End a backtest early. */
  cancel(backtestId: string): Promise<models.BacktestDetail> {
    const names = { backtest_id: backtestId };
    return this.transport.fetch("post", "/v1/backtests/{backtest_id}/cancel", { names });
  }
}

/** Single executions of code. */
export class Runs {
  constructor(private readonly transport: Transport) {}

  /** Return a run with its output. */
  get(runId: string): Promise<models.Run> {
    return this.transport.fetch("get", "/v1/runs/{run_id}", { names: { run_id: runId } });
  }

  /** End a run early. */
  cancel(runId: string): Promise<models.Run> {
    return this.transport.fetch("post", "/v1/runs/{run_id}/cancel", { names: { run_id: runId } });
  }

  /** Execute a run again that failed permanently. */
  retry(runId: string, waiting: Waiting = {}): Promise<models.Run> {
    const names = { run_id: runId };
    return this.transport.settle("post", "/v1/runs/{run_id}/retry", { names }, waiting);
  }
}

/** Users who were deleted. */
export class Erasures {
  constructor(private readonly transport: Transport) {}

  /** Return an erasure, which is the proof of the deletion. */
  get(erasureId: string): Promise<models.Erasure> {
    const names = { erasure_id: erasureId };
    return this.transport.fetch("get", "/v1/erasures/{erasure_id}", { names });
  }
}

/** Endpoints of your product that the server calls; `verifyWebhook` verifies the calls. */
export class Webhooks {
  constructor(private readonly transport: Transport) {}

  /** Return the endpoints. */
  list(query: Filters<"/v1/webhooks"> = {}): Pages<models.Endpoint> {
    return this.transport.pages("/v1/webhooks", { query });
  }

  /** Return an endpoint. */
  get(endpointId: string): Promise<models.Endpoint> {
    const names = { endpoint_id: endpointId };
    return this.transport.fetch("get", "/v1/webhooks/{endpoint_id}", { names });
  }

  /** Create an endpoint; its secret is shown this once. */
  create(body: Body<"/v1/webhooks", "post">): Promise<models.EndpointWithSecret> {
    return this.transport.fetch("post", "/v1/webhooks", { body });
  }

  /** Change an endpoint. */
  change(
    endpointId: string,
    { ifMatch, ...body }: Body<"/v1/webhooks/{endpoint_id}", "patch"> & Matching,
  ): Promise<models.Endpoint> {
    const parts = { names: { endpoint_id: endpointId }, body, ifMatch };
    return this.transport.fetch("patch", "/v1/webhooks/{endpoint_id}", parts);
  }

  /** Delete an endpoint. */
  delete(endpointId: string, { ifMatch }: Matching = {}): Promise<undefined> {
    const parts = { names: { endpoint_id: endpointId }, ifMatch };
    return this.transport.fetch("delete", "/v1/webhooks/{endpoint_id}", parts);
  }

  /** Replace the secret; messages are signed with both for a day. */
  rotateSecret(endpointId: string): Promise<models.EndpointWithSecret> {
    const names = { endpoint_id: endpointId };
    return this.transport.fetch("post", "/v1/webhooks/{endpoint_id}/rotate-secret", { names });
  }

  /** Send a test message; `delivery` shows what became of it. */
  test(endpointId: string): Promise<models.Delivery> {
    const names = { endpoint_id: endpointId };
    return this.transport.fetch("post", "/v1/webhooks/{endpoint_id}/test", { names });
  }

  /** Send again what failed since a moment. */
  replay(
    endpointId: string,
    body: Body<"/v1/webhooks/{endpoint_id}/replay", "post">,
  ): Promise<models.ReplayResult> {
    const parts = { names: { endpoint_id: endpointId }, body };
    return this.transport.fetch("post", "/v1/webhooks/{endpoint_id}/replay", parts);
  }

  /** Return the messages for an endpoint, newest first. */
  deliveries(
    endpointId: string,
    query: Filters<"/v1/webhooks/{endpoint_id}/deliveries"> = {},
  ): Pages<models.Delivery> {
    const names = { endpoint_id: endpointId };
    return this.transport.pages("/v1/webhooks/{endpoint_id}/deliveries", { names, query });
  }

  /** Return a message with the attempts to deliver it. */
  delivery(endpointId: string, deliveryId: string): Promise<models.DeliveryDetail> {
    const names = { endpoint_id: endpointId, delivery_id: deliveryId };
    const path = "/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}";
    return this.transport.fetch("get", path, { names });
  }

  /** Send a message again. */
  replayDelivery(endpointId: string, deliveryId: string): Promise<models.Delivery> {
    const names = { endpoint_id: endpointId, delivery_id: deliveryId };
    const path = "/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}/replay";
    return this.transport.fetch("post", path, { names });
  }
}
