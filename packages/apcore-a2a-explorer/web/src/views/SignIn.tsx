import { useEffect, useRef, useState } from "preact/hooks";
import type { SecurityScheme } from "../protocol/card";
import { card, loadCard } from "../state/agent";
import { credentialsOf, sendable, signIn, signingIn, unusable } from "../state/credentials";
import { loadInbox } from "../state/tasks";

/** Where the card declares nothing, or is itself refused, a bearer token is the usual thing. */
const ANY: SecurityScheme = { name: "bearer", kind: "bearer", description: "", hint: "HTTP bearer" };

export function SignIn() {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = signingIn.value;
  useEffect(() => {
    const { current } = dialog;
    if (asked && current && !current.open) {
      current.showModal();
      current.querySelector("input")?.focus();
    }
    if (!asked) current?.close();
  }, [asked]);
  return (
    <dialog ref={dialog} aria-labelledby="sign-in" onCancel={() => (signingIn.value = null)}>
      {asked && <Content reason={asked.reason} />}
    </dialog>
  );
}

function Content({ reason }: { reason: string }) {
  const declared = card.value?.schemes ?? [];
  const schemes = declared.length ? declared : [ANY];
  const [name, setName] = useState((schemes.find((each) => !unusable(each)) ?? schemes[0]!).name);
  const [secret, setSecret] = useState("");
  const scheme = schemes.find((each) => each.name === name)!;
  const why = unusable(scheme);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (!secret.trim() || why) return;
    const found = credentialsOf(scheme, secret.trim());
    if (!sendable(found)) return setWrong("It has characters that can't be sent in a header.");
    signIn(found);
    signingIn.value = null;
    void loadCard().then(() => loadInbox());
  };
  return (
    <form onSubmit={submit}>
      <h2 id="sign-in">Sign in</h2>
      {reason && <p role="alert">{reason}</p>}
      <label for="scheme">How</label>
      <select id="scheme" value={name} onChange={(event) => setName(event.currentTarget.value)}>
        {schemes.map((each) => (
          <option key={each.name} value={each.name}>
            {each.name}: {each.hint}
          </option>
        ))}
      </select>
      {scheme.description && <p class="hint">{scheme.description}</p>}
      {why && <p class="error-line">{why}</p>}
      <label for="secret">{LABELS[scheme.kind]}</label>
      <input
        id="secret"
        type="password"
        autocomplete="off"
        aria-describedby="secret-error"
        value={secret}
        onInput={(event) => (setSecret(event.currentTarget.value), setWrong(""))}
      />
      <p id="secret-error" class="error-line" role="status">
        {wrong}
      </p>
      <p class="hint">It stays in this tab, and is forgotten when the tab is closed.</p>
      <div class="bar">
        <button type="submit" class="primary" disabled={Boolean(why)}>
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
  basic: "name:password",
  apiKey: "API key",
  other: "Credentials",
};
