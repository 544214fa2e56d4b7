import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

/** The compiler, which `viewer/check` installs. */
const ts = await import("typescript").then((one) => one.default, () => null);

const MODULES = new URL("../modules/", import.meta.url);
const SHIPPED = new URL("../../src/regard/viewer/viewer.js", import.meta.url);

/** The statements of a file as the compiler reads them: each is its words, without comments, spaces and `export`. */
function statements(url) {
  const source = ts.createSourceFile(url.pathname, readFileSync(url, "utf8"), ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  const words = (node) => {
    if (ts.isJSDoc(node) || node.kind === ts.SyntaxKind.ExportKeyword) return [];
    const children = node.getChildren(source);
    return children.length ? children.flatMap(words) : [node.getText(source)];
  };
  return source.statements.filter((one) => !ts.isImportDeclaration(one) && !ts.isExportDeclaration(one)).map((one) => words(one).join("\n"));
}

test("the joined file has the statements of the modules, word for word", { skip: ts ? false : "TypeScript is not installed: run viewer/check" }, () => {
  const names = readdirSync(MODULES, { recursive: true }).map(String).filter((name) => name.endsWith(".js"));
  const written = names.flatMap((name) => statements(new URL(name, MODULES)));
  assert.ok(written.length > 500);
  assert.deepEqual(statements(SHIPPED).sort(), written.sort());
});
