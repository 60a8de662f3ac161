import type { ComponentChildren, ComponentType } from "preact";

/* rjsf's own templates need Bootstrap and an icon font. */

interface ButtonProps {
  id?: string;
  disabled?: boolean;
  onClick?: (event: never) => void;
}

const button = (label: string, icon: string) =>
  function Button({ id, disabled, onClick }: ButtonProps) {
    return (
      <button
        type="button"
        id={id}
        class="quiet small"
        aria-label={label}
        title={label}
        disabled={disabled}
        onClick={onClick as never}
      >
        {icon}
      </button>
    );
  };

const buttons = {
  AddButton: button("Add", "+ Add"),
  CopyButton: button("Duplicate", "Duplicate"),
  MoveUpButton: button("Move up", "↑"),
  MoveDownButton: button("Move down", "↓"),
  RemoveButton: button("Remove", "Remove"),
  ClearButton: button("Clear", "Clear"),
  SubmitButton: () => null,
};

interface FieldProps {
  id: string;
  label: string;
  required?: boolean;
  hidden?: boolean;
  displayLabel?: boolean;
  rawDescription?: string;
  rawErrors?: string[];
  children: ComponentChildren;
  schema: { type?: unknown; oneOf?: unknown; anyOf?: unknown; __additional_property?: boolean };
  registry: { schemaUtils: { isSelect: (schema: object) => boolean } };
  onKeyRenameBlur?: (event: never) => void;
  onRemoveProperty?: () => void;
}

function Field(props: FieldProps) {
  const { id, label, required, hidden, rawErrors, children, schema } = props;
  if (hidden) return <div hidden>{children}</div>;
  const nested = schema.type === "object" || schema.type === "array";
  const errors = [...new Set(rawErrors)];
  return (
    <div class={`field${errors.length ? " wrong" : ""}`}>
      {schema.__additional_property && <Key {...props} />}
      {props.displayLabel && !schema.__additional_property && !nested && schema.type !== "boolean" && (
        <label for={inputId(props)}>
          {label}
          {required && <span class="required"> required</span>}
        </label>
      )}
      {!nested && props.rawDescription && (
        <p class="hint" id={`${id}__description`}>
          {props.rawDescription}
        </p>
      )}
      {children}
      {errors.length > 0 && (
        <ul class="errors" id={`${id}__error`}>
          {errors.map((error) => (
            <li key={error}>{error}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** The id of the element to label: the selector of a branch if there is one, else the field. */
function inputId({ id, schema, registry }: FieldProps): string {
  if (!(schema.oneOf || schema.anyOf) || registry.schemaUtils.isSelect(schema)) return id;
  return `${id}${schema.oneOf ? "__oneof_select" : "__anyof_select"}`;
}

/** The name of a member that is not in the schema. */
function Key({ id, label, onKeyRenameBlur, onRemoveProperty }: FieldProps) {
  return (
    <div class="row key">
      <label for={`${id}-key`}>Name</label>
      <input id={`${id}-key`} defaultValue={label} onBlur={onKeyRenameBlur as never} />
      <button type="button" class="quiet small" onClick={onRemoveProperty}>
        Remove
      </button>
    </div>
  );
}

interface ItemProps {
  children: ComponentChildren;
  hasToolbar?: boolean;
  buttonsProps: Record<string, unknown>;
  registry: { templates: { ArrayFieldItemButtonsTemplate: ComponentType<Record<string, unknown>> } };
}

function Item({ children, hasToolbar, buttonsProps, registry }: ItemProps) {
  const Buttons = registry.templates.ArrayFieldItemButtonsTemplate;
  return (
    <div class="item">
      <div class="content">{children}</div>
      {hasToolbar && (
        <div class="buttons">
          <Buttons {...buttonsProps} />
        </div>
      )}
    </div>
  );
}

const Description = ({ id, description }: { id: string; description?: ComponentChildren }) =>
  description ? (
    <p class="hint" id={id}>
      {description}
    </p>
  ) : null;

const Title = ({ id, title, required }: { id: string; title: string; required?: boolean }) => (
  <legend id={id}>
    {title}
    {required && <span class="required"> required</span>}
  </legend>
);

export const templates = {
  ButtonTemplates: buttons,
  FieldTemplate: Field,
  ArrayFieldItemTemplate: Item,
  DescriptionFieldTemplate: Description,
  TitleFieldTemplate: Title,
  FieldErrorTemplate: () => null,
  ErrorListTemplate: () => null,
} as never;
