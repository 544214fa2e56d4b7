// @ts-check

import { FONT } from "./lettering.js";

/** Below this width, in pixels, the viewer has the layout of phones. */
export const PHONE = 480;

export const STYLE = `
:host { display: block; height: 100%; overflow: auto; color-scheme: light dark; }
:host([data-scheme="light"]) { color-scheme: light; }
:host([data-scheme="dark"]) { color-scheme: dark; }
* { box-sizing: border-box; }
.viewer { display: flex; flex-direction: column; height: 100%; min-height: 560px; position: relative; overflow: hidden;
  background: var(--background); color: var(--text); font: 13px/1.4 ${FONT}; }
header { display: grid; grid-template: "title texts facts what more" auto / auto minmax(0, auto) minmax(max-content, 1fr) auto auto; align-items: center; gap: 0 16px; padding: 4px 16px; }
h1, h2 { grid-area: title; font-size: 16px; line-height: 24px; font-weight: 650; margin: 0; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
.texts { grid-area: texts; margin: 0; color: var(--muted); font-size: 13px; overflow-wrap: anywhere; max-height: 4.2em; overflow: auto; min-width: 0; }
.texts b { font-weight: 600; margin-right: 4px; }
.texts span { margin-right: 16px; unicode-bidi: isolate; }
.facts { grid-area: facts; margin: 0; color: var(--muted); font-size: 13px; }
.what { grid-area: what; background: none; white-space: nowrap; }
.more { grid-area: more; border-color: transparent; background: none; font-size: 20px; line-height: 1; padding: 0 8px; margin: 0 -8px; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 16px; padding: 4px 16px 8px; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 8px; min-width: 0; }
.bar:empty { display: none; }
.tabs { display: inline-flex; flex-wrap: wrap; padding: 2px; gap: 2px; margin-left: auto; border-radius: 8px; background: var(--surface); }
.tabs[hidden] { display: none; }
.tabs button { border: 1px solid transparent; background: none; padding: 2px 12px; min-height: 32px; color: var(--muted); }
.tabs button:hover { color: var(--text); }
.tabs button[aria-selected="true"] { background: var(--background); border-color: var(--border); color: var(--text); font-weight: 600; }
label, .group { display: inline-flex; align-items: center; gap: 8px; color: var(--muted); font-size: 13px; max-width: 100%; }
.pair { display: inline-flex; gap: 2px; }
.pair[hidden] { display: none; }
.pair button { min-width: 32px; padding: 2px 6px; }
.label { color: var(--muted); font-size: 13px; white-space: nowrap; }
button, select { font: inherit; font-size: 13px; color: var(--text); background: var(--surface); border: 1px solid var(--border); border-radius: 6px;
  padding: 2px 8px; min-height: 32px; max-width: 100%; }
select { max-width: min(24em, 90vw); }
input[type="checkbox"] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
button { cursor: pointer; }
button:disabled { cursor: default; color: var(--muted); opacity: .6; }
button:hover:enabled { border-color: var(--muted); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; }
.heads { display: inline-flex; flex-wrap: wrap; gap: 2px; }
.heads button { display: inline-flex; align-items: center; gap: 4px; padding: 1px 6px; min-height: 26px; }
.heads button[aria-pressed="false"] { color: var(--muted); background: none; border-color: transparent; }
.heads button[aria-pressed="false"] svg { opacity: .45; }
.heads .name { align-self: center; margin-right: 4px; color: var(--muted); }
.heads svg { display: block; }
.menu { position: absolute; z-index: 5; right: 16px; top: 44px; display: flex; flex-direction: column; align-items: stretch; gap: 8px; padding: 12px;
  width: max-content; min-width: 200px; max-width: calc(100% - 32px); max-height: calc(100% - 60px); overflow: auto; background: var(--background);
  border: 1px solid var(--border); border-radius: 8px; box-shadow: 0 4px 24px rgb(0 0 0 / 18%); }
.menu[hidden] { display: none; }
.menu label { justify-content: space-between; }
.menu label:has(input) { justify-content: flex-start; }
.menu .group { gap: 4px; }
.menu .group button { flex: 1 0 auto; white-space: nowrap; }
.body { display: flex; flex: 1 1 auto; min-height: 0; flex-direction: column; }
.main { display: flex; flex: 1 1 auto; min-width: 0; min-height: 0; flex-direction: column; }
.textlist { display: flex; flex: none; gap: 4px; overflow: auto; padding: 4px 16px; overscroll-behavior: contain; scrollbar-width: thin; }
.textlist[hidden] { display: none; }
.textlist [role="option"] { flex: none; display: grid; grid-template-columns: auto 1fr; gap: 0 8px; max-width: 208px; padding: 4px 8px; border: 1px solid transparent; border-radius: 6px;
  color: var(--muted); line-height: 18px; cursor: pointer; }
.textlist bdi { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 1; overflow: hidden; overflow-wrap: anywhere; }
.textlist b { color: var(--text); font-weight: 650; }
.textlist .number { font-variant-numeric: tabular-nums; }
.textlist [role="option"]:hover { color: var(--text); border-color: var(--border); }
.textlist [aria-selected="true"] { background: var(--surface); border-color: var(--border); color: var(--text); }
.listed .body { flex-direction: row; }
.listed .textlist { flex-direction: column; width: 240px; padding: 8px 0 8px 16px; }
.listed .textlist [role="option"] { max-width: none; }
.listed .textlist::before { content: attr(aria-label); padding: 0 8px; font-weight: 650; }
.listed .textlist bdi { flex: 1 1 0; }
.textlist:not(.listed *) bdi { max-width: 168px; }
.textlist .result { grid-column: 2; color: var(--text); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.textlist .result:empty { display: none; }
.listed .textlist bdi { -webkit-line-clamp: 3; }
.stage { position: relative; flex: none; min-height: 0; }
.walking .stage { flex: 1 1 auto; min-height: 240px; }
.scroll { position: absolute; inset: 0; overflow: auto; }
.space { position: absolute; left: 0; top: 0; pointer-events: none; }
canvas { position: sticky; display: block; left: 0; top: 0; touch-action: pan-x pan-y; }
canvas:focus-visible { outline-offset: -3px; }
canvas.grab { cursor: grabbing; }
.tip { position: absolute; z-index: 3; left: 0; top: 0; max-width: min(30em, calc(100% - 16px)); max-height: 9em; overflow: hidden; padding: 4px 8px;
  border: 1px solid var(--border); border-radius: 6px; background: var(--background); color: var(--text); font-size: 13px;
  box-shadow: 0 2px 10px rgb(0 0 0 / 25%); pointer-events: none; overflow-wrap: anywhere; }
.tip[hidden] { display: none; }
footer { padding: 4px 16px 8px; border-top: 1px solid var(--border); }
.told { padding: 4px 16px 8px; overflow-wrap: anywhere; }
.sentence { margin: 0; font-size: 20px; line-height: 28px; text-wrap: pretty; }
.shares { margin: 0; font-size: 13px; line-height: 20px; font-variant-numeric: tabular-nums; }
.shares.plain { font-size: 16px; line-height: 24px; color: var(--muted); }
.shares span { display: inline-block; vertical-align: top; }
.help { margin: 0; color: var(--muted); font-size: 13px; line-height: 20px; }
.readout { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
.cards { position: absolute; inset: 0; z-index: 4; }
.cards[hidden] { display: none; }
.cards > svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.cards .veil { fill: var(--background); fill-opacity: .72; fill-rule: evenodd; }
.cards .lead { stroke: var(--accent); stroke-width: 2; fill: none; }
.cards .target { stroke: var(--accent); stroke-width: 2; fill: none; rx: 4; }
.card { position: absolute; width: 224px; padding: 8px 12px; border: 2px solid var(--accent); border-radius: 8px; background: var(--background); color: var(--text);
  font-size: 13px; line-height: 18px; box-shadow: 0 2px 12px rgb(0 0 0 / 18%); }
.card b { display: block; font-size: 14px; margin-bottom: 2px; }
.card[hidden] { display: none; }
.card:focus { outline: 3px solid var(--focus); outline-offset: 2px; }
.cardkeys { position: absolute; right: 12px; bottom: 36px; display: flex; gap: 8px; align-items: center; padding: 4px; border-radius: 8px; background: var(--background); }
.keys { width: min(440px, calc(100% - 24px)); max-height: calc(100% - 24px); padding: 16px; border: 1px solid var(--border); border-radius: 6px; overflow: auto;
  background: var(--background); color: var(--text); }
.keys::backdrop { background: rgb(0 0 0 / 40%); }
.keys-head { display: flex; align-items: center; justify-content: space-between; }
.keys h3 { margin: 16px 0 4px; font-size: 13px; font-weight: 650; }
.keys dl { margin: 0; }
.keys dl div { display: flex; gap: 16px; padding: 4px 0; }
.keys dt { flex: 0 0 136px; display: flex; flex-wrap: wrap; align-content: flex-start; gap: 4px; }
.keys dt span { display: inline-flex; gap: 2px; }
.keys dd { margin: 0; }
kbd { min-width: 24px; padding: 0 6px; border: 1px solid var(--border); border-radius: 6px; background: var(--surface); font: inherit; text-align: center; }
.error { padding: 16px; }
.narrow { height: auto !important; min-height: 100%; overflow: visible; }
.narrow header { grid-template: "title more" auto "texts texts" auto "facts what" auto / minmax(0, 1fr) auto; row-gap: 2px; }
.narrow .what { justify-self: end; }
.narrow .more { justify-self: end; margin: 0 -4px; }
.narrow .tabs { position: relative; flex: 1 1 100%; flex-wrap: nowrap; overflow-x: auto; scrollbar-width: none; }
.narrow .bar { flex: 1 1 100%; }
.narrow .bar label, .narrow .bar > select { flex: 1 0 88px; }
.narrow .bar select { padding-inline: 4px; }
.narrow .bar label select { flex: 1 1 0; min-width: 0; }
.narrow .heads { display: grid; grid-template-columns: repeat(auto-fill, minmax(54px, 1fr)); flex: 1 1 100%; max-height: 124px; overflow: auto; }
.narrow .heads button { justify-content: center; padding: 2px; min-height: 28px; }
.narrow .heads .name { grid-area: 1 / 1 / 2 / -3; }
.narrow .heads > button:last-child { grid-area: 1 / -3 / 2 / -1; }
.narrow .tabs button { flex: 1 0 auto; padding: 2px 4px; }
.narrow .sentence { font-size: 16px; line-height: 24px; }
.narrow .shares.plain { font-size: 13px; line-height: 20px; }
.narrow .shares span { display: block; }
@media print {
  :host { height: auto; overflow: visible; color-scheme: light; print-color-adjust: exact; }
  .viewer { height: auto !important; min-height: 0; overflow: visible; break-inside: avoid; }
  .row, .more, .textlist, .menu, .tip, .help, .what, .cards { display: none !important; }
  .texts, .readout { max-height: none; overflow: visible; }
  .scroll { position: static; overflow: visible; }
  .space { display: none; }
  canvas { position: static; max-width: 100%; height: auto !important; }
}
@media (forced-colors: active) {
  .tabs button[aria-selected="true"], .textlist [aria-selected="true"] { border: 2px solid Highlight; }
  .cards .target, .cards .lead { stroke: Highlight; }
  .heads button[aria-pressed="true"] { border: 2px solid Highlight; }
  canvas { forced-color-adjust: none; }
}
`;
