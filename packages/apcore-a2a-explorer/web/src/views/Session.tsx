import { card } from "../state/agent";
import { credentials, signIn, signingIn } from "../state/credentials";
import { forgetSession } from "../state/session";

/** Signing in and out. */
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
    <button type="button" class="quiet" onClick={signOut} title={`Signed in with ${credentials.value.scheme}`}>
      Sign out
    </button>
  );
}

export function signOut(): void {
  forgetSession();
  signIn(null);
  // reload, so that nothing from the session remains
  history.replaceState(null, "", "#/");
  location.reload();
}
