import { render } from "preact";
import "./style.css";
import { card, loadCard } from "./state/agent";
import { credentials } from "./state/credentials";
import { restoreRuns } from "./state/runs";
import { startPolling } from "./state/live";
import { loadAccess } from "./state/access";
import { loadInbox } from "./state/tasks";
import { App } from "./views/App";

// reconnect to running tasks at once, because agents cancel a task soon after the task's last client
// has disconnected
restoreRuns();
void loadCard().then(() => {
  startPolling();
  credentials.subscribe(() => void loadAccess());
  // loading the inbox without credentials would open the sign-in dialog at once
  if (card.value && (credentials.value || !card.value.schemes.length)) return loadInbox();
  return undefined;
});
const root = document.getElementById("app")!;
root.replaceChildren(); // removes the placeholder that is shown until this script has loaded
render(<App />, root);
