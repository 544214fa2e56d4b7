import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["modules/**/*.js", "page/*.js"],
    languageOptions: { globals: globals.browser },
  },
  { files: ["tests/**/*.js"], languageOptions: { globals: globals.node } },
  {
    rules: {
      "eqeqeq": "error", "no-implicit-coercion": "error", "no-shadow": "error", "no-var": "error", "prefer-const": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }], "no-param-reassign": "error",
    },
  },
];
