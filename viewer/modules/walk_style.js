// @ts-check

/** The look of the walk, beside the map of all pairs; in a narrow pane below it. */
export const WALK_STYLE = `
.beside { position: absolute; inset: 0 0 0 auto; width: calc(100% - var(--map)); border-left: 1px solid var(--border); }
.beside[hidden] { display: none; }
.viewer { --map: 0px; }
.walking { --map: clamp(240px, 33%, 520px); }
.walking .scroll { inset: 0 auto 0 0; width: var(--map); }
.walk { display: grid; grid-template: "head buttons" auto "strip strip" auto "body body" minmax(0, 1fr) / minmax(0, 1fr) auto; gap: 8px 16px; height: 100%; padding: 12px 16px 0; font-size: 13px; }
.walk h2, .walk h3 { margin: 0; font-size: 13px; font-weight: 650; }
.walk h2 { font-size: 16px; display: block; }
.walk p { margin: 0; }
.walk .note { color: var(--muted); font-size: 12px; }
.walk-head { grid-area: head; display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; min-width: 0; }
.steps-buttons { grid-area: buttons; }
.walk-body { grid-area: body; overflow: auto; min-width: 0; margin: 0 -16px; padding: 2px 16px 16px; }
.unfold { display: none; }
.walk-pair, .steps-buttons { display: inline-flex; gap: 8px; align-items: center; min-width: 0; }
.walk-pair select { font-weight: 650; max-width: min(14em, 36vw); }
select.query, .token.query { border: 1px solid var(--asks); box-shadow: inset 0 -3px var(--asks); }
select.key, .token.key { border: 1px solid var(--answers); box-shadow: inset 0 -3px var(--answers); }
button.primary { background: var(--text); color: var(--background); border-color: var(--text); padding: 3px 16px; }
.walk button:disabled { opacity: .5; cursor: default; }
.strip, .stations { list-style: none; margin: 0; padding: 0; }
.strip { grid-area: strip; display: flex; gap: 4px; flex-wrap: wrap; min-width: 0; }
.strip li { display: inline-flex; align-items: center; gap: 4px; min-width: 0; }
.strip button { display: flex; flex-direction: column; align-items: flex-start; padding: 3px 8px; text-align: left; min-width: 0; }
.strip button span { font-size: 12px; color: var(--muted); }
.strip .number, .strip .short { display: none; }
.strip button[aria-current] { border-color: var(--text); box-shadow: inset 0 -3px var(--text); }
.operation { color: var(--muted); font-size: 12px; white-space: nowrap; }
.strip .operation::after { content: "\\2192"; margin-left: 3px; }
.try { display: grid; grid-template-columns: minmax(250px, 340px) minmax(0, 1fr); gap: 8px 24px; padding: 12px; margin-top: 8px; border: 1px solid var(--border);
  border-radius: 6px; background: var(--surface); }
.settings { display: grid; gap: 4px; align-content: start; }
.settings label { display: grid; grid-template-columns: 8.5em minmax(0, 1fr); gap: 4px 8px; color: var(--text); }
.settings label[hidden] { display: none; }
.settings output { grid-column: 2; font-size: 12px; color: var(--muted); }
.settings select { width: 100%; max-width: none; }
@media (max-width: 420px) { .try { padding: 8px 6px; } .settings label { grid-template-columns: minmax(0, 1fr); } .settings output { grid-column: 1; } .settings select { padding: 2px; } }
.track { position: relative; display: block; }
.track input { width: 100%; margin: 0; accent-color: var(--accent); }
.own { position: absolute; bottom: -3px; width: 2px; height: 8px; margin-left: -1px; background: var(--text); }
.restore { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; }
.walk-row { min-width: 0; }
.columns { display: flex; gap: 2px; align-items: stretch; height: 190px; }
.columns .column { flex: 1 1 0; min-width: 0; max-width: 64px; display: flex; flex-direction: column; align-items: center; border: 0; background: none; padding: 0; gap: 2px; }
.columns small { font-size: 11px; color: var(--muted); overflow: visible; white-space: nowrap; }
.bar-room { position: relative; flex: 1 1 auto; width: 100%; max-width: 40px; border-bottom: 1px solid var(--border); }
.bar-room i { position: absolute; left: 0; right: 0; bottom: 0; }
.amount { background: var(--muted); }
.column[aria-pressed="true"] .amount { background: var(--answers); }
.column[aria-pressed="true"] .name { font-weight: 650; }
.ghost { border: 2px dashed var(--text); border-bottom: 0; }
.columns .name { writing-mode: vertical-rl; height: 72px; overflow: hidden; white-space: nowrap; font-size: 12px; }
.stations { display: grid; grid-template-columns: minmax(0, 1fr); gap: 4px; }
.station { border: 1px solid var(--border); border-radius: 6px; background: var(--background); }
.station.here { border-color: var(--text); box-shadow: 0 0 0 1px var(--text); margin: 4px 0; }
.line { display: grid; grid-template-columns: 1.5em minmax(0, max-content) minmax(0, 1fr) max-content; gap: 0 8px; align-items: baseline; align-content: center; width: 100%; min-height: 36px; padding: 4px 12px;
  border: 0; background: none; text-align: left; }
.line .number { color: var(--muted); font-weight: 400; font-variant-numeric: tabular-nums; }
.line .name { font-weight: 650; }
.line .brief { color: var(--muted); font-weight: 400; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.line b { grid-column: 4; font-variant-numeric: tabular-nums; }
.here .line { cursor: default; }
.here .line .name, .here .line b { font-size: 16px; }
.open { padding: 0 12px 12px; }
.says { display: none; font-size: 16px; line-height: 24px; margin-bottom: 12px !important; }
.parts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); gap: 16px 24px; align-items: start; }
.told-part { display: grid; gap: 8px; justify-items: start; }
.tokens { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.token { padding: 3px 10px 5px; border-radius: 6px; font-size: 16px; overflow-wrap: anywhere; }
.formula { display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center; font-variant-numeric: tabular-nums; }
.formula b { padding: 2px 6px; border: 1px solid var(--border); border-radius: 4px; }
.list-name { font-size: 12px; padding-left: 6px; margin-bottom: 3px !important; }
.list.query .list-name { box-shadow: inset 3px 0 var(--asks); }
.list.key .list-name { box-shadow: inset 3px 0 var(--answers); }
.numbers { display: grid; grid-template-columns: repeat(8, minmax(0, 1fr)); gap: 1px; max-width: 420px; }
.numbers .cell { padding: 5px 0; min-height: 28px; border: 0; border-radius: 0; font-size: 12px; line-height: 16px; text-align: center; font-variant-numeric: tabular-nums; }
.numbers .fold { grid-column: 1 / -1; justify-self: start; }
.numbers button.cell:hover, .numbers .cell[aria-expanded="true"] { outline: 2px solid var(--text); outline-offset: -2px; }
.fold { border: 0; background: none; padding: 2px 4px; min-height: 24px; font-size: 12px; color: var(--text); text-decoration: underline; }
.opened { margin-top: 6px; padding-left: 8px; border-left: 3px solid var(--text); }
.sum { min-width: 0; }
.walk table { border-collapse: collapse; width: 100%; font-size: 12px; font-variant-numeric: tabular-nums; }
.walk th, .walk td { padding: 1px 4px; text-align: right; font-weight: 400; }
.walk th[scope="row"], .walk thead th:first-child { text-align: left; max-width: 9em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.walk thead th { color: var(--muted); border-bottom: 1px solid var(--border); }
.walk tfoot th, .walk tfoot td { border-top: 1px solid var(--text); font-weight: 650; }
.walk tr.muted > * { color: var(--muted); }
.walk tr.rest > * { color: var(--muted); }
.walk tr.chosen > * { font-weight: 650; background: var(--surface); }
.walk tr.chosen > th { box-shadow: inset 3px 0 var(--answers); padding-left: 8px; }
.walk td.share { position: relative; width: 36%; }
.share span { position: absolute; inset: 4px 0 4px 12px; }
.share i { position: absolute; top: 0; bottom: 0; border-radius: 1px; }
.signs span { background: linear-gradient(var(--border), var(--border)) center / 1px 100% no-repeat; }
.walk { container-type: inline-size; }
@container (max-width: 680px) { .try { grid-template-columns: minmax(0, 1fr); } }
@container (max-width: 560px) { .line .brief { display: none; } }
@container (max-width: 420px) { .walk td.share { display: none; } .numbers { grid-template-columns: repeat(4, minmax(0, 1fr)); } }
.walking.slim { height: auto; min-height: 100%; overflow: visible; }
.walking.slim .told { display: none; }
.walking.slim .stage { display: flex; flex-direction: column; }
.walking.slim .beside { position: static; order: 2; width: auto; border: 0; }
.walking.slim .scroll { position: relative; order: 1; inset: auto; width: auto; height: 340px; border-bottom: 1px solid var(--border); }
.walking.slim:not(.mapped) .scroll:not(:focus-within) { height: 1px; overflow: hidden; border: 0; }
.slim .repeated { display: none; }
.slim .unfold { display: block; }
.slim .walk { display: block; height: auto; padding: 8px 12px 0; }
.slim .walk .says { display: block; }
.slim .steps-buttons, .slim .strip { position: sticky; z-index: 2; top: 0; margin: 0 -12px; padding: 8px 12px 4px; background: var(--background); }
.slim .steps-buttons { display: flex; justify-content: space-between; height: 44px; }
.slim .strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(68px, 1fr)); top: 44px; padding: 4px 12px 8px; border-bottom: 1px solid var(--border); }
.slim .strip .name, .slim .strip .operation, .slim .strip .long { display: none; }
.slim .strip .number, .slim .strip b.short { display: block; }
.slim .strip button { width: 100%; padding: 2px 6px; }
.slim .strip b { max-width: 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 12px; }
.slim .walk-body { margin: 0; padding: 8px 0 16px; overflow: visible; }
.slim .columns { height: 170px; }
@media (forced-colors: active) {
  .walk .cell, .bar-room i { forced-color-adjust: none; }
  .amount { background: CanvasText; }
  .ghost { border-color: Highlight; }
  .strip button[aria-current], .station.here article { border-color: Highlight; }
}
`;
