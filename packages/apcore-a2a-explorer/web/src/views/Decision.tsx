import { useEffect, useRef, useState } from "preact/hooks";
import { isDestructive } from "../state/agent";

interface Props {
  /** A suffix for the ids of the input elements. */
  id: string;
  /** The skill that is called. */
  skill: string;
  decide: (isApproved: boolean, reason: string) => void;
}

/** A form that approves or denies a call. To approve a call of a destructive skill, the user types the skill's id; a denial may have a reason. */
export function Decision({ id, skill, decide }: Props) {
  const [isDenying, setDenying] = useState(false);
  if (isDenying) return <Denial id={id} deny={(reason) => decide(false, reason)} back={() => setDenying(false)} />;
  return (
    <Approval
      id={id}
      requiredId={isDestructive(skill) ? skill : ""}
      approve={() => decide(true, "")}
      deny={() => setDenying(true)}
    />
  );
}

interface ApprovalProps {
  id: string;
  /** The skill id that the user must type to approve; empty if nothing must be typed. */
  requiredId: string;
  approve: () => void;
  deny: () => void;
}

function Approval({ id, requiredId, approve, deny }: ApprovalProps) {
  const [typed, setTyped] = useState("");
  const [isMissing, setMissing] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    if (typed.trim() === requiredId) return approve();
    setMissing(true);
    field.current?.focus();
  };
  return (
    <form onSubmit={submit}>
      {requiredId && (
        <>
          <label for={`confirm-${id}`}>
            This can't be undone. Type <strong class="mono breakable">{requiredId}</strong> to approve it.
          </label>
          <input
            ref={field}
            id={`confirm-${id}`}
            class="mono"
            autocomplete="off"
            aria-invalid={isMissing}
            value={typed}
            onInput={(event) => (setTyped(event.currentTarget.value), setMissing(false))}
          />
        </>
      )}
      <div class="bar">
        <button type="submit" class={requiredId ? "danger" : "primary"} data-key="a">
          Approve
        </button>
        <button type="button" data-key="d" onClick={deny}>
          Deny…
        </button>
        <span role="status">{isMissing && "Type the skill ID first."}</span>
      </div>
    </form>
  );
}

interface DenialProps {
  id: string;
  deny: (reason: string) => void;
  back: () => void;
  /** The number of calls to deny, such as "3 calls"; empty for a single decision. */
  calls?: string;
}

/** A form that denies, with an optional reason. */
export function Denial({ id, deny, back, calls = "" }: DenialProps) {
  const [reason, setReason] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form onSubmit={(event) => (event.preventDefault(), deny(reason.trim()))}>
      <label for={`reason-${id}`}>Reason (optional; the requester sees it)</label>
      <input
        id={`reason-${id}`}
        ref={field}
        value={reason}
        onInput={(event) => setReason(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && back()}
      />
      <div class="bar">
        <button type="submit" class="danger">
          Deny {calls}
        </button>
        <button type="button" class="quiet" onClick={back}>
          Back
        </button>
      </div>
    </form>
  );
}
