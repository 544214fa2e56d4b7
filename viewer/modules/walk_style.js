// @ts-check

/** The look of the walk, beside the map of all pairs; in a narrow pane below it. */
export const WALK_STYLE = `
.beside { position: absolute; inset: 0 0 0 auto; width: calc(100% - var(--map)); border-left: 1px solid var(--border); }
.beside[hidden] { display: none; }
.viewer { --map: 0px; }
.walking { --map: clamp(240px, 28%, 440px); }
.walking .scroll { inset: 0 auto 0 0; width: var(--map); }
.walk { display: grid; container-type: inline-size; grid-template: "head buttons" auto "strip strip" auto "body body" minmax(0, 1fr) / minmax(0, 1fr) auto; gap: 8px 16px; height: 100%; padding: 12px 16px 0; font-size: 13px; }
.walk h2, .walk h3 { margin: 0; font-size: 13px; font-weight: 650; }
.walk h2 { font-size: 16px; display: block; }
.walk p { margin: 0; }
.walk .note { color: var(--muted); font-size: 12px; }
.walk-head { grid-area: head; display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; min-width: 0; }
.steps-buttons { grid-area: buttons; }
.walk-body { grid-area: body; display: flex; flex-direction: column; overflow: auto; min-width: 0; margin: 0 -16px; padding: 2px 16px 16px; }
.unfold { display: none; }
.walk-pair, .steps-buttons { display: inline-flex; gap: 8px; align-items: center; min-width: 0; }
.walk-pair select { font-weight: 650; max-width: min(14em, 36vw); }
select.query, mark.query { box-shadow: inset 0 -3px var(--asks); }
select.key, mark.key { box-shadow: inset 0 -3px var(--answers); }
mark.query.key { box-shadow: inset 0 -3px var(--asks), inset 0 3px var(--answers); }
button.primary { background: var(--text); color: var(--background); border-color: var(--text); padding: 3px 16px; }
.walk button:disabled { opacity: .5; cursor: default; }
.strip { grid-area: strip; position: relative; list-style: none; margin: 0; padding: 0; display: flex; min-width: 0; overflow-x: auto; scrollbar-width: none; }
.strip li { flex: 1 0 auto; display: flex; align-items: center; box-shadow: inset 0 -3px var(--border); }
.strip button { flex: 1; display: flex; flex-direction: column; align-items: flex-start; padding: 4px 8px; border: 0; border-radius: 0; background: none; text-align: left;
  white-space: nowrap; color: var(--muted); font-variant-numeric: tabular-nums; }
.strip button:focus-visible { outline-offset: -3px; }
.strip button b { min-height: 18px; font-weight: 600; }
.strip .done { box-shadow: inset 0 -3px var(--muted); }
.strip button[aria-current] { color: var(--text); box-shadow: inset 0 -3px var(--text); }
.strip button[aria-current] span { font-weight: 650; }
.operation { font-size: 15px; white-space: nowrap; padding: 0 4px; }
.try { flex: 1 0 auto; display: grid; gap: 16px 24px; padding: 24px 16px 0; }
.opened-try { grid-template-columns: minmax(250px, 340px) minmax(0, 1fr); }
.slim .try:not(.opened-try), .early:not(.opened-try), .try:not(.opened-try) .settings { display: none; }
.settings { display: grid; gap: 4px; align-content: start; }
.settings label { display: grid; grid-template-columns: 8.5em minmax(0, 1fr); gap: 4px 8px; color: var(--text); }
.settings label[hidden] { display: none; }
.settings output { grid-column: 2; font-size: 12px; color: var(--muted); }
.settings select { width: 100%; max-width: none; }
@media (max-width: 420px) { .try { padding: 8px 0; } .settings label { grid-template-columns: minmax(0, 1fr); } .settings output { grid-column: 1; } .settings select { padding: 2px; } }
.track { position: relative; display: block; }
.track input { width: 100%; margin: 0; accent-color: var(--accent); }
.own { position: absolute; bottom: -3px; width: 2px; height: 8px; margin-left: -1px; background: var(--text); }
.restore { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; }
.walk-row { min-width: 0; display: flex; flex-direction: column; }
.columns { display: flex; gap: 2px; align-items: stretch; flex: 1 0 168px; max-height: 320px; }
.columns .column { flex: 1 1 0; min-width: 0; max-width: 64px; display: flex; flex-direction: column; align-items: center; border: 0; background: none; padding: 0; gap: 2px; }
.columns small { position: absolute; left: 50%; translate: -50%; font-size: 11px; white-space: nowrap; }
.bar-room { position: relative; flex: 1 1 auto; width: 100%; max-width: 40px; margin-top: 16px; border-bottom: 1px solid var(--border); }
.bar-room i { position: absolute; left: 0; right: 0; bottom: 0; }
.amount { background: var(--muted); }
.column[aria-pressed="true"] .amount { background: var(--answers); }
.column[aria-pressed="true"] .name { font-weight: 650; }
.ghost { border: 2px dashed var(--text); border-bottom: 0; }
.columns .name { writing-mode: vertical-rl; height: 72px; overflow: hidden; white-space: nowrap; font-size: 12px; text-align: end; rotate: 180deg; }
.column.special { color: var(--muted); }
.column.special .amount { opacity: .5; }
.station { border: 1px solid var(--border); border-radius: 6px; padding: 16px; }
.station h3 { color: var(--muted); }
.says { font-size: 16px; line-height: 24px; margin: 4px 0 16px !important; max-width: 70em; text-wrap: pretty; }
.parts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); gap: 16px 24px; align-items: start; }
.told-part { display: grid; gap: 8px; justify-items: start; }
.texts-of-pair { grid-column: 1 / -1; display: grid; gap: 8px; max-height: 11em; overflow: auto; }
.tokens { font-size: 20px; line-height: 32px; overflow-wrap: anywhere; }
.tokens mark { padding: 2px 4px 4px; background: var(--surface); color: inherit; border-radius: 4px; font-weight: 650; }
.tokens .special { font-size: 13px; color: var(--muted); }
.formula { display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center; font-size: 20px; line-height: 28px; font-variant-numeric: tabular-nums; }
.formula b { font-weight: 650; }
.list, .signs-key { grid-column: 1 / -1; }
.list-name { grid-column: 1; align-self: center; padding-left: 8px; }
.list-name.query { box-shadow: inset 3px 0 var(--asks); }
.list-name.key { box-shadow: inset 3px 0 var(--answers); }
.numbers { display: grid; gap: 2px; }
.numbers small { color: var(--muted); font-size: 11px; text-align: center; }
.numbers .dim { grid-column: 1; text-align: end; padding-right: 8px; }
.numbers .first { grid-column-start: 1; }
.marked { box-shadow: inset 0 0 0 2px var(--text); }
.signs-key { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; }
.signs-key i { width: 96px; height: 12px; border-radius: 2px; }
.outlined::before { content: ""; display: inline-block; width: 20px; height: 14px; margin-right: 6px; vertical-align: -2px; box-shadow: inset 0 0 0 2px var(--text); }
.list ~ .told-part { grid-column: 1 / -1; }
.numbers .cell { padding: 6px 0; min-height: 28px; border: 0; border-radius: 2px; font-size: 12px; line-height: 16px; text-align: center; font-variant-numeric: tabular-nums; }
.numbers .folding { grid-column: 1 / -1; }
.stations:has(+ .early:not(.opened-try)) { flex: 1 0 auto; display: grid; }
.numbers button.cell:hover, .numbers .cell[aria-expanded="true"] { outline: 2px solid var(--text); outline-offset: -2px; }
.fold { border: 0; background: none; padding: 2px 4px; min-height: 24px; font-size: 12px; color: var(--text); text-decoration: underline; }
.opened { margin-top: 6px; padding-left: 8px; border-left: 3px solid var(--text); }
.sum { min-width: 0; }
.walk table { border-collapse: collapse; width: 100%; font-size: 12px; font-variant-numeric: tabular-nums; }
.walk th, .walk td { padding: 1px 4px; text-align: right; font-weight: 400; }
.walk th[scope="row"], .walk thead th:first-child { text-align: left; max-width: 9em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.walk thead th { color: var(--muted); border-bottom: 1px solid var(--border); }
.walk td { white-space: nowrap; }
.walk tfoot th, .walk tfoot td { border-top: 1px solid var(--text); font-weight: 650; }
.walk tr.muted > * { color: var(--muted); }
.walk tr.rest > * { color: var(--muted); }
.walk tr.chosen > * { font-weight: 650; background: var(--surface); }
.walk tr.chosen > th { box-shadow: inset 3px 0 var(--answers); padding-left: 8px; }
.walk td.share { position: relative; width: 36%; }
.share span { position: absolute; inset: 4px 0 4px 12px; }
.share i { position: absolute; top: 0; bottom: 0; border-radius: 1px; }
.signs span { background: linear-gradient(var(--border), var(--border)) center / 1px 100% no-repeat; }
@container (max-width: 840px) { .operation { display: none; } }
@container (max-width: 680px) { .opened-try { grid-template-columns: minmax(0, 1fr); } }
@container (max-width: 559px) { .list-name { grid-column: 1 / -1; } .list-name:not(:first-child) { margin-top: 6px; } .station h3 { display: none; } .tokens { font-size: 16px; line-height: 26px; } }
@container (min-width: 560px) {
  .says { font-size: 18px; line-height: 28px; } .tokens { font-size: 22px; line-height: 36px; } .formula { font-size: 24px; line-height: 36px; }
  .numbers .cell { font-size: 14px; padding: 8px 0; } .numbers .folding { grid-column: 2 / -1; }
  .walk table, .told-part .note { font-size: 14px; } .walk th, .walk td { padding: 3px 8px; }
}
@media (min-height: 840px) and (min-width: 560px) { .stations:has(+ .early) .parts { gap: 32px 24px; } .stations:has(+ .early) .cell { padding: 14px 0; } .stations:has(+ .early) :is(th, td) { padding-block: 7px; } }
@container (max-width: 420px) { .walk td.share { display: none; } }
.walking.slim { height: auto; min-height: 100%; overflow: visible; }
.walking.slim .stage { display: flex; flex-direction: column; }
.walking.slim .beside { position: static; order: 2; width: auto; border: 0; }
.walking.slim .scroll { position: relative; order: 1; inset: auto; width: auto; height: 340px; border-bottom: 1px solid var(--border); }
.walking.slim:not(.mapped) .scroll:not(:focus-within) { height: 1px; overflow: hidden; border: 0; }
.repeated { display: none; }
.slim .unfold { display: block; }
.slim .walk { display: flex; flex-direction: column; gap: 0; height: auto; padding: 0 16px; }
.slim .strip { position: sticky; z-index: 2; top: 0; margin: 0 -16px; padding: 0 8px; background: var(--background); }
.slim .strip::before { content: ""; position: sticky; left: -8px; flex: 0 0 16px; margin: 0 -8px; background: linear-gradient(to left, transparent, var(--background)); }
.slim .strip::after { content: ""; position: sticky; right: -8px; flex: 0 0 32px; background: linear-gradient(to right, transparent, var(--background)); }
.slim .walk-body { display: contents; }
.slim .stations, .slim .try, .slim .walk-body > .note { order: 1; margin-top: 12px; }
.slim .walk-head { order: 2; margin-top: 12px; }
.slim .steps-buttons { order: 3; position: sticky; z-index: 2; bottom: 0; display: flex; justify-content: space-between; margin: 12px -16px 0; padding: 8px 16px;
  border-top: 1px solid var(--border); background: var(--background); }
@media (forced-colors: active) {
  .walk .cell, .bar-room i { forced-color-adjust: none; }
  .amount { background: CanvasText; }
  .ghost { border-color: Highlight; }
  .strip button[aria-current] { border-bottom: 3px solid Highlight; }
}
`;
