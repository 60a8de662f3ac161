import {
  ConnectionError,
  describe,
  fieldErrors,
  HttpError,
  isBusy,
  reasonOf,
  RpcError,
  type FieldError,
} from "../protocol/errors";
import { signingIn } from "../state/credentials";
import { formatDuration } from "./times";

export function Errors({ errors }: { errors: FieldError[] }) {
  if (!errors.length) return null;
  return (
    <ul class="errors">
      {errors.map(({ field, message }, index) => (
        <li key={index}>
          {field && <code>{field}</code>} {message}
        </li>
      ))}
    </ul>
  );
}

/** An error message for users. */
export function Failure({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <div class="failure" role="alert">
      <strong>{titleOf(error)}</strong> <span class="breakable">{describe(error)}</span>
      {error instanceof RpcError && (
        <span class="muted">
          {" "}
          ({[error.code, reasonOf(error)].filter(Boolean).join(", ")})
        </span>
      )}
      <RetryHint error={error} />
      <Errors errors={fieldErrors(error)} />
      {error instanceof HttpError && error.status === 401 && (
        <p>
          <button type="button" onClick={() => (signingIn.value = { reason: "" })}>
            Sign in
          </button>
        </p>
      )}
    </div>
  );
}

function RetryHint({ error }: { error: unknown }) {
  const seconds = error instanceof RpcError || error instanceof HttpError ? error.retryAfter : 0;
  if (seconds) return <span> Try again in {formatDuration(seconds * 1000)}.</span>;
  return titleOf(error) === BUSY ? <span> Try again later.</span> : null;
}

const BUSY = "The agent is busy.";

function titleOf(error: unknown): string {
  if (isBusy(error)) return BUSY;
  if (error instanceof RpcError) {
    if (error.code === -32602) return "The agent rejected the input.";
    if (error.code === -32001) return "This task doesn't exist, or you can't access it.";
    return "The agent rejected the request.";
  }
  if (error instanceof HttpError && error.status === 401) return "Sign in to continue.";
  if (error instanceof HttpError && error.status === 403) return "You don't have permission to do this.";
  if (error instanceof HttpError) return "The agent sent an unexpected response.";
  if (error instanceof ConnectionError) return "No connection.";
  return "This page can't call the agent.";
}
