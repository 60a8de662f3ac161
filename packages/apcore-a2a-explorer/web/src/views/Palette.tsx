import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { commandsFor, type Command } from "./commands";

const KEYS: [string[], string][] = [
  [["Ctrl", "K"], "Find a skill, a task or an action"],
  [["/"], "Search skills"],
  [["↓", "↑"], "Move through skills"],
  [["Ctrl", "Enter"], "Run the skill, or send the answer"],
  [["j", "k"], "Next and previous task in the inbox"],
  [["x"], "Select the task, to decide on several at once"],
  [["a", "d"], "Approve or deny the task"],
  [["?"], "Show these keys"],
  [["Esc"], "Close"],
];

type Shown = "commands" | "keys" | null;

/** The command palette (Ctrl+K), and the list of keys (?). */
export function Palette() {
  const [shown, setShown] = useState<Shown>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const handleKey = (event: KeyboardEvent) => {
      const next = dialogFor(event);
      if (!next || document.querySelector("dialog[open]:not(.palette)")) return;
      event.preventDefault();
      setShown(next);
      if (!dialog.current!.open) dialog.current!.showModal();
    };
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  // a layout effect, because a key may open the dialog again before other effects run
  useLayoutEffect(() => {
    if (!shown) dialog.current!.close();
  }, [shown]);
  const close = () => setShown(null);
  // the close event comes late: a key may have opened the dialog again
  const onClose = () => !dialog.current!.open && close();
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label={shown === "keys" ? "Keys" : "Commands"}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && close()}
    >
      {shown === "commands" && <Commands close={close} />}
      {shown === "keys" && <Keys close={close} />}
    </dialog>
  );
}

function dialogFor(event: KeyboardEvent): Shown {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey) return "commands";
  const isTyping = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  return event.key === "?" && !isTyping && !event.ctrlKey && !event.metaKey ? "keys" : null;
}

function Commands({ close }: { close: () => void }) {
  const [query, setQuery] = useState("");
  const [cursor, setCursor] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const commands = commandsFor(query);
  const chosen = Math.min(cursor, commands.length - 1);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  const handleKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setCursor((chosen + step + commands.length) % Math.max(1, commands.length));
    else if (event.key === "Enter") run(commands[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        ref={field}
        role="combobox"
        aria-label="Command"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={commands.length ? `command-${chosen}` : undefined}
        placeholder="A skill, a task ID, a view or an action"
        value={query}
        onInput={(event) => (setQuery(event.currentTarget.value), setCursor(0))}
        onKeyDown={handleKey}
      />
      <ul id="commands" ref={list} role="listbox" aria-label="Commands">
        {commands.map((command, index) => (
          <li
            key={`${command.kind} ${command.label} ${command.detail}`}
            id={`command-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => run(command)}
            onPointerMove={() => setCursor(index)}
          >
            <span class="muted kind">{command.kind}</span>
            <span class="breakable">{command.label}</span>
            {command.detail && <span class="muted mono breakable">{command.detail}</span>}
          </li>
        ))}
      </ul>
      {!commands.length && <p class="muted" role="status">Nothing matches</p>}
    </>
  );
}

function Keys({ close }: { close: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => button.current?.focus(), []);
  return (
    <>
      <h2>Keys</h2>
      <dl class="facts">
        {KEYS.map(([keys, meaning]) => (
          <>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </>
        ))}
      </dl>
      <button type="button" ref={button} onClick={close}>
        Close
      </button>
    </>
  );
}
