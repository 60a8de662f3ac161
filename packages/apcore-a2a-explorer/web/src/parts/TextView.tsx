import { useState } from "preact/hooks";
import type { Part } from "../protocol/types";
import { Choice } from "./Choice";
import { LongText } from "./LongText";
import { Markdown } from "./Markdown";
import { markdownIn } from "./shapes";

/** A text, shown as Markdown if its type or its look says so, until the user chooses. */
export function TextView({ part }: { part: Part }) {
  const [chosen, setChosen] = useState("");
  const { text = "" } = part;
  const { isPossible, isFirst } = markdownIn(part);
  if (!isPossible) return <LongText text={text} />;
  const kind = chosen || (isFirst ? "Markdown" : "Text");
  return (
    <>
      <Choice
        label="Show as"
        options={isFirst ? ["Markdown", "Text"] : ["Text", "Markdown"]}
        value={kind}
        onChange={setChosen}
      />
      {kind === "Markdown" ? <Markdown source={text} /> : <LongText text={text} />}
    </>
  );
}
