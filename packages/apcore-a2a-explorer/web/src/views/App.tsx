import { useEffect, useRef } from "preact/hooks";
import { Boundary } from "../parts/Boundary";
import { describe } from "../protocol/errors";
import { skillOf } from "../protocol/taskFacts";
import { card, cardError, loadCard, skillsById } from "../state/agent";
import { route } from "../state/route";
import { runs } from "../state/runs";
import { inbox, inboxHasMore } from "../state/tasks";
import { ConversationView } from "./ConversationView";
import { Conversations } from "./Conversations";
import { Header } from "./Header";
import { Inbox } from "./Inbox";
import { NowView } from "./NowView";
import { Palette } from "./Palette";
import { PerformanceView } from "./PerformanceView";
import { Requests } from "./Requests";
import { SignIn } from "./SignIn";
import { Skills } from "./Skills";
import { TaskList } from "./TaskList";
import { TaskView } from "./TaskView";
import { WebhooksView } from "./WebhooksView";
import { shortId } from "./times";

export function App() {
  useTitle();
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to main content
      </a>
      <Header />
      <Main />
      <SignIn />
      <Palette />
    </>
  );
}

/** Set the title of the tab: the number of waiting tasks, then the shown view. */
function useTitle(): void {
  const [section = "skills", id] = route.value.path;
  const name = section === "skills" ? (id && (skillsById.value.get(id)?.name ?? id)) : titleOf(section, id);
  const count = inbox.value?.length ? `(${inbox.value.length}${inboxHasMore.value ? "+" : ""}) ` : "";
  const title = count + [name, card.value?.name, "A2A explorer"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function titleOf(section: string, id: string | undefined): string {
  if (section === "tasks" && id) {
    const task = runs.value.get(`task ${id}`)?.task;
    return [task && skillOf(task), `Task ${shortId(id)}`].filter(Boolean).join(" · ");
  }
  return section.charAt(0).toUpperCase() + section.slice(1);
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Main() {
  const main = useRef<HTMLElement>(null);
  const { path, query } = route.value;
  const viewKey = path.join("/");
  const isFirstRender = useRef(true);
  useEffect(() => {
    if (!isFirstRender.current) {
      scrollTo(0, 0);
      main.current?.focus({ preventScroll: true });
    }
    isFirstRender.current = false;
  }, [viewKey]);
  return (
    <main id="main" ref={main} tabIndex={-1}>
      {card.value ? (
        <Boundary key={viewKey} instead={(error) => <Broken error={error} />}>
          <View path={path} query={query} />
        </Boundary>
      ) : (
        <NoCard />
      )}
    </main>
  );
}

function View({ path: [section = "skills", id], query }: { path: string[]; query: URLSearchParams }) {
  switch (section) {
    case "skills":
      return <Skills id={id} query={query} />;
    case "tasks":
      return id ? <TaskView key={id} id={id} /> : <TaskList query={query} />;
    case "inbox":
      return <Inbox />;
    case "conversations":
      return id ? <ConversationView key={id} id={id} /> : <Conversations />;
    case "now":
      return <NowView />;
    case "performance":
      return <PerformanceView />;
    case "webhooks":
      return <WebhooksView />;
    case "requests":
      return <Requests />;
    default:
      return (
        <section class="page">
          <h1>Page not found</h1>
          <p>
            This address does not match any view. <a href="#/">Go to the skills.</a>
          </p>
        </section>
      );
  }
}

const Broken = ({ error }: { error: unknown }) => (
  <section class="page">
    <h1>This view can't be displayed</h1>
    <p role="alert" class="breakable">
      The agent sent data that this page can't display. To inspect the data, copy the request from
      the Requests view and run it. The error was: {describe(error)}
    </p>
  </section>
);

function NoCard() {
  if (!cardError.value) return <p class="page muted" role="status">Loading the Agent Card…</p>;
  return (
    <section class="page">
      <h1>The Agent Card can't be loaded</h1>
      <p role="alert">{cardError.value}</p>
      <button type="button" onClick={() => void loadCard()}>
        Try again
      </button>
    </section>
  );
}
