import { render } from "preact";
import "./style.css";
import { card, loadCard } from "./state/agent";
import { credentials } from "./state/credentials";
import { loadInbox } from "./state/tasks";
import { App } from "./views/App";

void loadCard().then(() => {
  // who is not known yet shall not be asked to sign in before anything was asked for
  if (card.value && (credentials.value || !card.value.schemes.length)) return loadInbox();
  return undefined;
});
render(<App />, document.getElementById("app")!);
