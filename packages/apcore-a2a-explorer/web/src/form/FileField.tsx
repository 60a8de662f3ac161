import { useId, useState } from "preact/hooks";
import { formatSize, toBase64 } from "../parts/files";
import type { Json, JsonObject } from "../protocol/types";
import { text } from "../protocol/values";
import { emptyOf, type FieldProps } from "./context";
import { propertiesOf } from "./fields";
import { Frame } from "./Frame";
import type { InputProps } from "./inputs";
import { resolve } from "./resolve";

/** The string that a file is sent as: the file's text if the schema says `binary` and the file is UTF-8, else base64(url). */
async function contentOf(file: File, schema: JsonObject): Promise<string> {
  const encoding = text(schema.contentEncoding) ?? text(schema.format) ?? "base64";
  if (encoding === "binary") {
    const content = await plainText(file);
    if (content !== null) return content;
  }
  const base64 = await toBase64(file);
  return encoding === "base64url" ? base64.replaceAll("+", "-").replaceAll("/", "_") : base64;
}

async function plainText(file: File): Promise<string | null> {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    return null;
  }
}

/** A field for a file, which is sent as a string. */
export function FileField({ field, schema }: InputProps) {
  const { value } = field;
  const [chosen, setChosen] = useState<{ file: File; content: string } | null>(null);
  const write = async ([file]: File[]) => {
    const content = await contentOf(file!, schema);
    setChosen({ file: file!, content });
    field.onChange(content);
  };
  const file = chosen && chosen.content === value ? chosen.file : undefined;
  return (
    <Frame field={field} schema={schema}>
      {({ fieldId, aria }) => (
        <>
          <FileDrop id={fieldId} aria={aria} write={write} />
          {typeof value === "string" && (
            <ChosenFile value={value} file={file} label={field.label} remove={field.isItem ? undefined : () => field.onChange(emptyOf(schema, field.required))} />
          )}
        </>
      )}
    </Frame>
  );
}

interface FileDropProps {
  id: string;
  aria?: Record<string, string | undefined>;
  several?: boolean;
  write: (files: File[]) => Promise<void>;
}

/** Takes files that are chosen, dropped or pasted. */
function FileDrop({ id, aria, several = false, write }: FileDropProps) {
  const [note, setNote] = useState("");
  const [isOver, setOver] = useState(false);
  const take = async (list: FileList | undefined | null) => {
    const files = Array.from(list ?? []);
    if (!files.length) return;
    const ignoredCount = several ? 0 : files.length - 1;
    setNote(ignoredCount ? `Only ${files[0]!.name} is used: this field takes one file.` : "");
    await write(several ? files : files.slice(0, 1));
  };
  return (
    <div
      class={`drop${isOver ? " over" : ""}`}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void take(event.dataTransfer?.files);
      }}
      onPaste={(event) => {
        if (!event.clipboardData?.files.length) return;
        event.preventDefault();
        void take(event.clipboardData.files);
      }}
    >
      <input
        id={id}
        {...aria}
        type="file"
        multiple={several}
        onChange={async ({ currentTarget }) => {
          await take(currentTarget.files);
          currentTarget.value = ""; // so that the same file can be chosen again
        }}
      />
      <span class="muted">Choose, drop or paste {several ? "files" : "a file"}.</span>
      <p class="note" role="status">
        {note}
      </p>
    </div>
  );
}

interface ChosenFileProps {
  value: string;
  file?: File;
  label: string;
  remove?: () => void;
}

function ChosenFile({ value, file, label, remove }: ChosenFileProps) {
  return (
    <p class="chosen-file">
      {file && <span class="breakable">{file.name}, </span>}
      <span class="muted">
        {file && `${formatSize(file.size)}, `}
        {formatSize(new Blob([value]).size)} in the request
      </span>{" "}
      {remove && (
        <button type="button" class="quiet small" aria-label={`Remove the file of ${label}`} onClick={remove}>
          Remove
        </button>
      )}
    </p>
  );
}

interface FileMembersProps extends InputProps {
  object: JsonObject;
  change: (members: JsonObject) => void;
}

const NAME_MEMBERS = ["name", "filename", "fileName"];

/** The field for the member `bytes` of an object; a chosen file also sets the members for its type and name. */
export function FileMembers({ field, schema, object, change }: FileMembersProps) {
  const members = propertiesOf(schema);
  const bytes = resolve(members.bytes, schema);
  const name = NAME_MEMBERS.find((candidate) => Object.hasOwn(members, candidate));
  const path = [...field.path, "bytes"];
  const member: FieldProps = { ...field, path, label: text(bytes.title) ?? "File", value: object.bytes };
  const write = async ([file]: File[]) => {
    const base64 = await toBase64(file!);
    const nameMember = name ? { [name]: file!.name } : {};
    change({ ...object, bytes: base64, mimeType: file!.type || "application/octet-stream", ...nameMember });
  };
  const remove = () => {
    const { bytes: _, mimeType: __, ...rest } = object;
    change(name ? Object.fromEntries(Object.entries(rest).filter(([key]) => key !== name)) : rest);
  };
  return (
    <Frame field={member} schema={bytes}>
      {({ fieldId, aria }) => (
        <>
          <FileDrop id={fieldId} aria={aria} write={write} />
          {typeof object.bytes === "string" && <ChosenFile value={object.bytes} label={member.label} remove={remove} />}
        </>
      )}
    </Frame>
  );
}

interface FilesDropProps {
  field: FieldProps;
  schema: JsonObject;
  add: (...items: Json[]) => void;
}

/** Adds several files to a list at once. */
export function FilesDrop({ field, schema, add }: FilesDropProps) {
  const id = useId();
  return (
    <div class="several">
      <label for={id}>Files for {field.label}</label>
      <FileDrop id={id} several write={async (files) => add(...(await Promise.all(files.map((file) => contentOf(file, schema)))))} />
    </div>
  );
}
