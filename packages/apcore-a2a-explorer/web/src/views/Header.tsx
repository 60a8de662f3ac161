import { card } from "../state/agent";
import { forgetSession } from "../state/session";
import { credentials, signIn, signingIn } from "../state/credentials";
import { href, route } from "../state/route";
import { theme, version, type Theme } from "../state/settings";
import { inbox, inboxIsFull } from "../state/tasks";
import type { Version } from "../protocol/types";

const SECTIONS = [
  ["skills", "Skills"],
  ["tasks", "Tasks"],
  ["inbox", "Inbox"],
  ["conversations", "Conversations"],
  ["requests", "Requests"],
] as const;

export function Header() {
  const section = route.value.path[0] ?? "skills";
  return (
    <header class="top">
      <a class="brand" href="#/" title={card.value?.name}>
        {card.value?.name ?? "A2A explorer"}
      </a>
      <nav aria-label="Views">
        {SECTIONS.map(([name, label]) => (
          <a key={name} href={href(name)} aria-current={section === name ? "page" : undefined}>
            {label}
            {name === "inbox" && <Count />}
          </a>
        ))}
      </nav>
      <div class="settings">
        <label>
          <span class="sr">Protocol version</span>
          <select
            value={version.value}
            onChange={(event) => (version.value = event.currentTarget.value as Version)}
          >
            <option value="1.0">A2A 1.0</option>
            <option value="0.3">A2A 0.3</option>
          </select>
        </label>
        <label>
          <span class="sr">Theme</span>
          <select
            value={theme.value}
            onChange={(event) => (theme.value = event.currentTarget.value as Theme)}
          >
            <option value="system">System</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <Session />
      </div>
    </header>
  );
}

function Count() {
  const waiting = inbox.value?.length ?? 0;
  if (!waiting) return null;
  return (
    <span class="count">
      {waiting}
      {inboxIsFull.value && "+"}
      <span class="sr"> waiting</span>
    </span>
  );
}

function Session() {
  if (!credentials.value && !card.value?.schemes.length) return null;
  if (!credentials.value) {
    return (
      <button type="button" onClick={() => (signingIn.value = { reason: "" })}>
        Sign in
      </button>
    );
  }
  const leave = () => {
    forgetSession();
    signIn(null);
    // reload, so that nothing from the session remains
    history.replaceState(null, "", "#/");
    location.reload();
  };
  return (
    <button type="button" class="quiet" onClick={leave} title={`Signed in with ${credentials.value.scheme}`}>
      Sign out
    </button>
  );
}
