import preact from "@preact/preset-vite";
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
  resolve: {
    alias: {
      // ajv compiles schemas with eval, which the page's CSP forbids
      "@rjsf/validator-ajv8": "/src/form/none.ts",
      // rjsf's Markdown, which the forms do not use
      "markdown-to-jsx/react": "/src/form/plain.ts",
    },
  },
  plugins: [preact({ prefreshEnabled: false }), viteSingleFile({ removeViteModuleLoader: true })],
  build: { target: "es2022", minify: "esbuild", modulePreload: false },
  test: { include: ["src/**/*.test.ts"] },
});
