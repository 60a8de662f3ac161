import { useEffect, useRef } from "preact/hooks";
import type { Version } from "../protocol/types";
import { card } from "../state/agent";
import { href, route } from "../state/route";
import { theme, version, type Theme } from "../state/settings";
import { apcoreViews, type ApcoreView } from "../state/access";
import { inbox, inboxHasMore } from "../state/tasks";
import { Icon, type IconName } from "./Icon";
import { Session } from "./Session";

const SECTIONS: [IconName, string][] = [
  ["skills", "Skills"],
  ["tasks", "Tasks"],
  ["inbox", "Inbox"],
  ["conversations", "Conversations"],
  ["requests", "Requests"],
];

const APCORE_SECTIONS: [ApcoreView, string][] = [
  ["now", "Now"],
  ["performance", "Performance"],
  ["webhooks", "Webhooks"],
];

/** The navigation between views, and the settings: a column, or a bar on phones. */
export function Header() {
  return (
    <header class="rail">
      <a class="brand" href="#/" title={card.value?.name}>
        {card.value?.name ?? "A2A explorer"}
      </a>
      <nav aria-label="Views">
        {SECTIONS.map(([name, label]) => (
          <Entry key={name} name={name} label={label} />
        ))}
        {apcoreViews.value.size > 0 && <span class="rail-title">Operate</span>}
        {APCORE_SECTIONS.filter(([name]) => apcoreViews.value.has(name)).map(([name, label]) => (
          <Entry key={name} name={name} label={label} />
        ))}
      </nav>
      <Settings />
    </header>
  );
}

function Entry({ name, label }: { name: IconName; label: string }) {
  const isCurrent = (route.value.path[0] ?? "skills") === name;
  const link = useRef<HTMLAnchorElement>(null);
  // on a phone, the bar may be wider than the screen
  useEffect(() => {
    if (isCurrent) link.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [isCurrent]);
  return (
    <a ref={link} href={href(name)} aria-current={isCurrent ? "page" : undefined}>
      <Icon name={name} />
      {label}
      {name === "inbox" && <Count />}
    </a>
  );
}

function Count() {
  const waitingCount = inbox.value?.length ?? 0;
  if (!waitingCount) return null;
  return (
    <span class="count">
      {waitingCount}
      {inboxHasMore.value && "+"}
      <span class="sr"> waiting</span>
    </span>
  );
}

function Settings() {
  return (
    <div class="settings">
      <Session />
      <label class="picker" title="Protocol version">
        <span class="sr">Protocol version</span>
        <select
          value={version.value}
          onChange={(event) => (version.value = event.currentTarget.value as Version)}
        >
          <option value="1.0">A2A 1.0</option>
          <option value="0.3">A2A 0.3</option>
        </select>
      </label>
      <label class="picker" title="Theme">
        <Icon name={theme.value} />
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
    </div>
  );
}
