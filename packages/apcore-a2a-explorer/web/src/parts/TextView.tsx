import { useState } from "preact/hooks";
import type { Part } from "../protocol/types";
import { Choice } from "./Choice";
import { LongText } from "./LongText";
import { Markdown } from "./Markdown";
import { markdownIn } from "./shapes";

/** A text. Until the user chooses, its media type and its content decide whether it is shown as Markdown. */
export function TextView({ part }: { part: Part }) {
  const [chosen, setChosen] = useState("");
  const { text = "" } = part;
  const { isPossible, isPreferred } = markdownIn(part);
  if (!isPossible) return <LongText text={text} />;
  const kind = chosen || (isPreferred ? "Markdown" : "Text");
  return (
    <>
      <Choice
        label="Show as"
        options={isPreferred ? ["Markdown", "Text"] : ["Text", "Markdown"]}
        value={kind}
        onChange={setChosen}
      />
      {kind === "Markdown" ? <Markdown source={text} /> : <LongText text={text} />}
    </>
  );
}
