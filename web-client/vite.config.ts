import { defineConfig } from "vitest/config";

export default defineConfig({
  build: {
    target: "es2022",
    // The page's policy allows no data: URLs and no inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": { target: "http://127.0.0.1:8760", ws: true } } },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
