import { useState } from "preact/hooks";
import type { Part } from "../protocol/types";
import { Choice } from "./Choice";
import { LongText } from "./LongText";
import { Markdown } from "./Markdown";
import { markdownIn } from "./shapes";

/** A text, shown as Markdown if it is declared as that or looks like it, until the user chooses. */
export function TextView({ part }: { part: Part }) {
  const [chosen, setChosen] = useState("");
  const { text = "" } = part;
  const { possible, first } = markdownIn(part);
  if (!possible) return <LongText text={text} />;
  const kind = chosen || (first ? "Markdown" : "Text");
  return (
    <>
      <Choice
        label="Show as"
        options={first ? ["Markdown", "Text"] : ["Text", "Markdown"]}
        value={kind}
        onChange={setChosen}
      />
      {kind === "Markdown" ? <Markdown source={text} /> : <LongText text={text} />}
    </>
  );
}
