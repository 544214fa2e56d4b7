import js from "@eslint/js";
import globals from "globals";

/** Two words in a row, or one with a capital: what a reader would see stands in words.js. */
const SENTENCE = /[A-Za-z]{2,} [A-Za-z]{2,}|^[A-Z][a-z]{2,}/;

/** What is no text for readers: an error of a programmer, a comparison, the name of a part. */
const SILENT = new Set(["ImportDeclaration", "ThrowStatement", "BinaryExpression", "SwitchCase"]);

/** Properties and calls whose texts are names: of classes, elements, events, keys. */
const NAMES = new Set(["class", "aria-describedby", "data-station", "keys"]);
const CALLS = new Set(["on", "querySelector", "querySelectorAll", "closest"]);

const isName = (node) => SILENT.has(node.type) || (node.type === "Property" && NAMES.has(node.key.name ?? node.key.value))
  || (node.type === "CallExpression" && CALLS.has(node.callee.name ?? node.callee.property?.name) && node.callee.property?.name !== "text");

const inTheTable = {
  create(context) {
    const check = (node, text) => {
      if (!SENTENCE.test(text)) return;
      for (let at = node.parent; at; at = at.parent) if (isName(at)) return;
      context.report({ node, message: "a text that is seen stands in words.js, in both languages" });
    };
    return {
      Literal: (node) => typeof node.value === "string" && check(node, node.value),
      TemplateElement: (node) => check(node, node.value.cooked ?? ""),
    };
  },
};

export default [
  js.configs.recommended,
  { files: ["modules/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["tests/**/*.js"], languageOptions: { globals: globals.node } },
  {
    rules: {
      "eqeqeq": "error", "no-implicit-coercion": "error", "no-shadow": "error", "no-var": "error", "prefer-const": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }], "no-param-reassign": "error",
    },
  },
  {
    files: ["modules/**/*.js"],
    ignores: ["modules/words.js", "modules/lettering.js", "modules/style.js", "modules/walk_style.js", "modules/palette.js", "modules/themes.js"],
    plugins: { regard: { rules: { "in-the-table": inTheTable } } },
    rules: { "regard/in-the-table": "error" },
  },
];
