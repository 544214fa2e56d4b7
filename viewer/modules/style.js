// @ts-check

import { FONT } from "./lettering.js";

export const STYLE = `
:host { display: block; height: 100%; overflow: auto; color-scheme: light dark; }
:host([data-scheme="light"]) { color-scheme: light; }
:host([data-scheme="dark"]) { color-scheme: dark; }
* { box-sizing: border-box; }
.viewer { display: flex; flex-direction: column; height: 100%; min-height: 560px; position: relative; overflow: hidden;
  background: var(--background); color: var(--text); font: 14px/1.4 ${FONT}; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 16px; padding: 10px 12px 4px; min-width: 0; }
h2 { font-size: 16px; font-weight: 650; margin: 0; overflow-wrap: anywhere; max-height: 3em; overflow: hidden; }
.texts { margin: 0; color: var(--muted); font-size: 13px; overflow-wrap: anywhere; max-height: 4.2em; overflow: auto; flex-basis: 100%; }
.texts b { font-weight: 600; margin-right: 4px; }
.texts span { margin-right: 14px; unicode-bidi: isolate; }
.tabs { display: flex; flex-wrap: wrap; padding: 2px 8px 0; border-bottom: 1px solid var(--border); }
.tabs button { border: 0; background: none; padding: 7px 10px 6px; border-bottom: 3px solid transparent; border-radius: 0; }
.tabs button[aria-selected="true"] { border-bottom-color: var(--accent); font-weight: 650; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 12px; padding: 7px 12px; }
.bar:empty { display: none; }
label, .group { display: inline-flex; align-items: center; gap: 5px; color: var(--muted); font-size: 13px; max-width: 100%; }
button, select { font: inherit; color: var(--text); background: var(--surface); border: 1px solid var(--border); border-radius: 5px;
  padding: 3px 8px; min-height: 28px; max-width: 100%; }
select { max-width: min(22em, 70vw); }
input[type="checkbox"] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
button { cursor: pointer; }
button:hover { border-color: var(--muted); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; }
.heads { display: inline-flex; flex-wrap: wrap; gap: 3px; }
.heads button { display: inline-flex; align-items: center; gap: 4px; padding: 1px 6px; min-height: 26px; }
.heads button[aria-pressed="false"] { opacity: .75; border-style: dashed; text-decoration: line-through; }
.heads svg { display: block; }
.push { margin-left: auto; display: inline-flex; flex-wrap: wrap; align-items: center; gap: 6px 8px; }
.stage { position: relative; flex: 1 1 auto; min-height: 260px; border-top: 1px solid var(--border); }
.scroll { position: absolute; inset: 0; overflow: auto; }
.space { position: absolute; left: 0; top: 0; pointer-events: none; }
canvas { position: sticky; display: block; left: 0; top: 0; touch-action: pan-x pan-y; }
canvas:focus-visible { outline-offset: -3px; }
canvas.grab { cursor: grabbing; }
.tip { position: absolute; z-index: 3; left: 0; top: 0; max-width: min(30em, calc(100% - 16px)); max-height: 9em; overflow: hidden; padding: 5px 9px;
  border: 1px solid var(--border); border-radius: 6px; background: var(--background); color: var(--text); font-size: 13px;
  box-shadow: 0 2px 10px rgb(0 0 0 / 25%); pointer-events: none; overflow-wrap: anywhere; }
.tip[hidden] { display: none; }
.readout { margin: 0; padding: 6px 12px 2px; min-height: 2em; max-height: 5.6em; overflow: auto; font-size: 13px; overflow-wrap: anywhere; border-top: 1px solid var(--border); }
.help { margin: 0; padding: 0 12px 8px; color: var(--muted); font-size: 12px; }
.error { padding: 16px; }
.narrow { min-height: 780px; }
.narrow .push { margin-left: 0; }
.narrow .bar { gap: 5px 10px; }
.narrow .tabs button { padding: 6px 7px 4px; }
@media (forced-colors: active) {
  .tabs button[aria-selected="true"] { border-bottom-color: Highlight; }
  .heads button[aria-pressed="true"] { border: 2px solid Highlight; }
  canvas { forced-color-adjust: none; }
}
`;
