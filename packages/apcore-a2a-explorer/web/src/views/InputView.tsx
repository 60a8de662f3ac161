import { hasForm } from "../form/fields";
import { SchemaForm } from "../form/SchemaForm";
import { Boundary } from "../parts/Boundary";
import { formatSize, toBase64 } from "../parts/files";
import type { Skill } from "../protocol/card";
import { setData, setJson, type Draft } from "../state/draft";
import { Errors } from "./Errors";

/** The input for a skill: data (as a form and as JSON), text, or files. */
export function InputView({ skill, draft }: { skill: Skill; draft: Draft }) {
  if (draft.kind.value === "text") return <TextInput draft={draft} />;
  if (draft.kind.value === "files") return <FilesInput draft={draft} />;
  return (
    <div class={hasForm(skill.inputSchema) ? "beside" : ""}>
      {hasForm(skill.inputSchema) && (
        <div>
          <h3>Form</h3>
          <Boundary instead={NoForm}>
            <SchemaForm
              id={`form_${skill.id.replace(/\W/g, "_")}`}
              schema={skill.inputSchema}
              data={draft.data.value}
              errors={draft.errors.value}
              onChange={(data) => setData(draft, data)}
            />
          </Boundary>
        </div>
      )}
      <JsonInput draft={draft} />
    </div>
  );
}

const NoForm = () => (
  <p class="hint" role="alert">
    No form is available for this schema. Enter the input as JSON.
  </p>
);

function JsonInput({ draft }: { draft: Draft }) {
  const jsonError = draft.jsonError.value;
  return (
    <div>
      <h3>
        <label for="json-input">JSON</label>
      </h3>
      <textarea
        id="json-input"
        class="mono"
        rows={Math.min(24, Math.max(6, draft.json.value.split("\n").length + 1))}
        spellcheck={false}
        value={draft.json.value}
        aria-invalid={jsonError ? "true" : undefined}
        aria-describedby="json-error"
        onInput={(event) => setJson(draft, event.currentTarget.value)}
      />
      <p id="json-error" class="error-line" role="status">
        {jsonError}
      </p>
    </div>
  );
}

function TextInput({ draft }: { draft: Draft }) {
  return (
    <>
      <label for="text-input">Text</label>
      <textarea
        id="text-input"
        rows={6}
        value={draft.text.value}
        onInput={(event) => (draft.text.value = event.currentTarget.value)}
      />
      <Errors errors={draft.errors.value} />
    </>
  );
}

function FilesInput({ draft }: { draft: Draft }) {
  const add = async (list: FileList | null) => {
    const files = await Promise.all(
      Array.from(list ?? [], async (file) => ({
        name: file.name,
        type: file.type,
        size: file.size,
        base64: await toBase64(file),
      })),
    );
    draft.files.value = [...draft.files.value, ...files];
  };
  const remove = (index: number) =>
    (draft.files.value = draft.files.value.filter((_, other) => other !== index));
  return (
    <>
      <label for="files-input">Files</label>
      <input
        id="files-input"
        type="file"
        multiple
        onChange={(event) => void add(event.currentTarget.files)}
      />
      <ul class="bare">
        {draft.files.value.map((file, index) => (
          <li key={index}>
            <span class="breakable">{file.name}</span>{" "}
            <span class="muted">
              {file.type || "unknown type"}, {formatSize(file.size)}
            </span>{" "}
            <button type="button" class="quiet small" onClick={() => remove(index)}>
              Remove
            </button>
          </li>
        ))}
      </ul>
      <Errors errors={draft.errors.value} />
    </>
  );
}
