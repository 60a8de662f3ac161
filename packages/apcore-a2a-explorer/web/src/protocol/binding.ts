/** The bindings of the protocol to HTTP. Each returns results in the format of JSON-RPC, because dialects read only that format. */

import type { AgentInterface } from "./card";
import type { Dialect, RpcRequest } from "./dialect";
import { RpcError } from "./errors";
import { httpJson } from "./httpJson";
import { toJson } from "./json";
import type { Operation } from "./types";
import { isObject, object, text } from "./values";

/** An operation as an HTTP request. */
export interface WireRequest {
  verb: "GET" | "POST" | "DELETE";
  /** The path and query below the URL of the interface, beginning with a slash; "" for the URL itself. */
  path: string;
  /** JSON; "" for no body. */
  body: string;
}

export interface Binding {
  /** The HTTP request for an operation; *id* is the id of a JSON-RPC request. */
  request(dialect: Dialect, operation: Operation, id: number): WireRequest;
  /** The result in the body of a response, or in an event of a stream; in the format of JSON-RPC. */
  result(operation: Operation, source: unknown): unknown;
  /** The error in the body of a response; undefined if the body has no error of the protocol. */
  error(source: unknown, status: number, retryAfter: number): RpcError | undefined;
}

export const envelope = (request: RpcRequest, id: number) => ({
  jsonrpc: "2.0" as const,
  id,
  ...request,
});

/** JSON-RPC over HTTP, for the *tenant* of an interface of A2A 1.0. */
export const jsonRpc = (tenant = ""): Binding => ({
  request(dialect, operation, id) {
    const { method, params } = dialect.request(operation);
    const request = { method, params: tenant ? { tenant, ...params } : params };
    return { verb: "POST", path: "", body: toJson(envelope(request, id)) };
  },
  result(_, source) {
    const response = object(source);
    return isObject(response?.error) || !response || !("result" in response) ? undefined : response.result;
  },
  error(source, status, retryAfter) {
    const { jsonrpc, error } = object(source) ?? {};
    // without `jsonrpc`, an error with a status other than 200 may come from a proxy
    if (!isObject(error) || (!jsonrpc && status !== 200)) return undefined;
    return new RpcError(Number(error.code), text(error.message) ?? "No reason given", error.data, retryAfter);
  },
});

/** The binding of an interface. */
export const bindingOf = ({ binding, tenant, version }: AgentInterface): Binding =>
  binding === "HTTP+JSON" ? httpJson(version.startsWith("0") ? "0.3" : "1.0", tenant) : jsonRpc(tenant);
