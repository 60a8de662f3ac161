// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { readToken } from "./identity";

const tokenOf = (claims: unknown) => {
  const bytes = String.fromCharCode(...new TextEncoder().encode(JSON.stringify(claims)));
  return `Bearer e30.${btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}.c2ln`;
};

test("the claims of a token give the name, the roles and the expiry", () => {
  expect(readToken(tokenOf({ sub: "Åda", roles: ["operator", 7], exp: 10 }))).toEqual({
    name: "Åda",
    roles: ["operator"],
    expiresAt: 10_000,
  });
  expect(readToken(tokenOf({ sub: 7, roles: "all", exp: "soon" }))).toEqual({ name: "", roles: [], expiresAt: undefined });
});

test("credentials without readable claims give no identity", () => {
  for (const secret of ["key", "Basic YTpi", "Bearer opaque", "Bearer a.%%%.c", "Bearer a.e30x.c", tokenOf(null)]) {
    expect(readToken(secret)).toBeNull();
  }
});
