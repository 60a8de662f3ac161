import { describe, fieldErrors, HttpError, reasonOf, RpcError, type FieldError } from "../protocol/errors";
import { signingIn } from "../state/credentials";
import { duration } from "./times";

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

/** What went wrong, for people. */
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
      <Wait error={error} />
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

function Wait({ error }: { error: unknown }) {
  const seconds = error instanceof RpcError || error instanceof HttpError ? error.retryAfter : 0;
  return seconds ? <span> Try again in {duration(seconds * 1000)}.</span> : null;
}

function titleOf(error: unknown): string {
  if (error instanceof RpcError) {
    if (error.code === -32602) return "The agent refused the input.";
    if (error.code === -32029) return "The agent is busy.";
    if (error.code === -32001) return "There is no such task.";
    return "The agent refused.";
  }
  if (error instanceof HttpError && error.status === 401) return "Sign in first.";
  if (error instanceof HttpError && error.status === 403) return "You may not do this.";
  if (error instanceof HttpError && [429, 503].includes(error.status)) return "The agent is busy.";
  if (error instanceof HttpError) return "The agent did not answer as expected.";
  return "No connection.";
}
