import { useEffect, useRef, useState } from "preact/hooks";
import type { SecurityScheme } from "../protocol/card";
import { card, loadCard } from "../state/agent";
import { credentialsOf, isSendable, signIn, signingIn, whyUnusable } from "../state/credentials";
import { loadInbox } from "../state/tasks";

/** The scheme to offer if the card declares no schemes, or can be read only after signing in. */
const BEARER: SecurityScheme = { name: "bearer", kind: "bearer", description: "", hint: "HTTP bearer" };

export function SignIn() {
  const dialog = useRef<HTMLDialogElement>(null);
  const request = signingIn.value;
  useEffect(() => {
    const { current } = dialog;
    if (request && current && !current.open) {
      current.showModal();
      current.querySelector("input")?.focus();
    }
    if (!request) current?.close();
  }, [request]);
  return (
    <dialog ref={dialog} aria-labelledby="sign-in" onCancel={() => (signingIn.value = null)}>
      {request && <Content reason={request.reason} />}
    </dialog>
  );
}

function Content({ reason }: { reason: string }) {
  const declaredSchemes = card.value?.schemes ?? [];
  const schemes = declaredSchemes.length ? declaredSchemes : [BEARER];
  const [name, setName] = useState((schemes.find((candidate) => !whyUnusable(candidate)) ?? schemes[0]!).name);
  const [secret, setSecret] = useState("");
  const scheme = schemes.find((candidate) => candidate.name === name)!;
  const reasonUnusable = whyUnusable(scheme);
  const [inputError, setInputError] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (!secret.trim() || reasonUnusable) return;
    const entered = credentialsOf(scheme, secret.trim());
    if (!isSendable(entered)) return setInputError("Some characters can't be sent in an HTTP header. Check them and try again.");
    signIn(entered);
    signingIn.value = null;
    void loadCard().then(() => loadInbox());
  };
  return (
    <form onSubmit={submit}>
      <h2 id="sign-in">Sign in</h2>
      {reason && <p role="alert">{reason}</p>}
      <label for="scheme">Authentication scheme</label>
      <select id="scheme" value={name} onChange={(event) => setName(event.currentTarget.value)}>
        {schemes.map((option) => (
          <option key={option.name} value={option.name}>
            {option.name}: {option.hint}
          </option>
        ))}
      </select>
      {scheme.description && <p class="hint">{scheme.description}</p>}
      {reasonUnusable && <p class="error-line">{reasonUnusable}</p>}
      <label for="secret">{LABELS[scheme.kind]}</label>
      <input
        id="secret"
        type="password"
        autocomplete="off"
        aria-describedby="secret-error"
        value={secret}
        onInput={(event) => (setSecret(event.currentTarget.value), setInputError(""))}
      />
      <p id="secret-error" class="error-line" role="status">
        {inputError}
      </p>
      <p class="hint">Kept in this tab only, until you close it or sign out.</p>
      <div class="bar">
        <button type="submit" class="primary" disabled={Boolean(reasonUnusable)}>
          Sign in
        </button>
        <button type="button" onClick={() => (signingIn.value = null)}>
          Not now
        </button>
      </div>
    </form>
  );
}

const LABELS: Record<SecurityScheme["kind"], string> = {
  bearer: "Token",
  basic: "Username and password (name:password)",
  apiKey: "API key",
  other: "Credentials",
};
