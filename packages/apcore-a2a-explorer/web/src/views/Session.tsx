import { card } from "../state/agent";
import { now } from "../state/clock";
import { credentials, signIn, signingIn } from "../state/credentials";
import { identity } from "../state/identity";
import { forgetSession } from "../state/session";
import { remainingTime } from "./times";

/** The signed-in user, and buttons to sign in and out. */
export function Session() {
  if (!credentials.value && !card.value?.schemes.length) return null;
  if (!credentials.value) {
    return (
      <button type="button" onClick={() => (signingIn.value = { reason: "" })}>
        Sign in
      </button>
    );
  }
  return (
    <>
      <SignedInUser />
      <button type="button" class="quiet" onClick={signOut} title={`Signed in with ${credentials.value.scheme}`}>
        Sign out
      </button>
    </>
  );
}

function SignedInUser() {
  if (!identity.value) return null;
  const { name, roles, expiresAt } = identity.value;
  const timeLeft = expiresAt === undefined ? "" : remainingTime(expiresAt - Math.max(now.value, Date.now()));
  const parts = [name || "signed in", ...roles, timeLeft].filter(Boolean);
  return (
    <p class="signed-in-user breakable" title={parts.join(" · ")}>
      {parts.join(" · ")}
    </p>
  );
}

export function signOut(): void {
  forgetSession();
  signIn(null);
  // reload, so that nothing from the session remains
  history.replaceState(null, "", "#/");
  location.reload();
}
