import preact from "@preact/preset-vite";
import license, { type Dependency } from "rollup-plugin-license";
import type { Plugin } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";
import { defineConfig } from "vitest/config";

const PACKAGE = "../src/apcore_a2a_explorer";

/** The licence texts of the bundled packages, which must be distributed with the page. */
function notices(dependencies: Dependency[]): string {
  const entries = dependencies.map(
    ({ name, version, license, licenseText, author }) =>
      `${name} ${version} (${license})\n\n${(licenseText || copyright(author)).trim()}\n`,
  );
  return `index.html holds parts of these packages.\n\n${entries.sort().join(`\n${"-".repeat(72)}\n\n`)}`;
}

const copyright = (author: Dependency["author"]) =>
  `Copyright ${author?.text() || "its authors"}`;

/** Move the script to the end of the body, so that browsers paint the page before it arrives. */
const scriptLast: Plugin = {
  name: "script-last",
  enforce: "post",
  generateBundle(_, bundle) {
    const page = bundle["index.html"];
    if (page?.type !== "asset") throw new Error("The build has no index.html");
    const source = String(page.source);
    const [script] = /<script type="module"[^>]*>[^]*<\/script>/.exec(source)!;
    // functions, because the script may contain $&
    page.source = source.replace(script, () => "").replace("</body>", () => `${script}\n  </body>`);
  },
};

export default defineConfig({
  plugins: [
    preact({ prefreshEnabled: false }),
    viteSingleFile({ removeViteModuleLoader: true }),
    scriptLast,
    license({ thirdParty: { output: { file: "../THIRD-PARTY.txt", template: notices } } }),
  ],
  build: {
    outDir: PACKAGE,
    emptyOutDir: false, // it also holds Python files
    target: "es2022",
    minify: "esbuild",
    modulePreload: false,
  },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
