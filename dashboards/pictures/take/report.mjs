// What a picture shows, in words: one line for each panel, which make.py reads too.
//
//     STATE  TYPE  TITLE | COUNT series|rows|values [| what is out of sight; …]
//
// STATE is `ok`, `EMPTY`, `OUT OF SIGHT` or `ERROR`; of an error, the third part is its text.
const WIDTHS = [14, 12];

/** Give the `text` of the report, the `errors` of queries and panels, and a `summary` in one line. */
export function reportOf({ board, flags, shown, panels }) {
  const found = new Map(panels.map((one) => [one.id, one]));
  const drawn = board.panels.filter((one) => one.type !== 'row').map((one) => stateOf(one, found.get(one.id)));
  const byId = new Map(drawn.map((one) => [one.id, one]));
  const end = new Date(flags.to * 1000).toISOString();
  const lines = [
    `# ${[board.title, flags.note].filter(Boolean).join(', ')}: last ${flags.lastText} to ${end}`,
    ...shown.map((one) => `# ${one.label}: ${one.text} (of ${one.count})`),
    ...board.panels.map((panel) => (panel.type === 'row' ? rowLine(panel) : panelLine(byId.get(panel.id)))),
  ];
  const empty = drawn.filter((one) => one.state === 'EMPTY').length;
  const unseen = drawn.filter((one) => one.unseen).length;
  return {
    text: `${lines.join('\n')}\n`,
    errors: drawn.filter((one) => one.state === 'ERROR').map((one) => `${one.title}: ${one.words.join('; ')}`),
    summary: `${drawn.length} panels, ${empty} empty, ${unseen} with something out of sight`,
  };
}

function stateOf({ id, type, title, answers }, { error, count = 0, unit = 'series', unseen = [] } = {}) {
  const wrong = [...answers.map((one) => one.error), error].filter(Boolean);
  const state = wrong.length ? 'ERROR' : !count ? 'EMPTY' : unseen.length ? 'OUT OF SIGHT' : 'ok';
  return { id, type, title, state, count, unit, unseen: unseen.length > 0, words: wrong.length ? wrong : unseen };
}

function rowLine(row) {
  return `== ${row.title}${row.collapsed ? ` (folded, ${row.hidden} panels)` : ''}`;
}

function panelLine({ state, type, title, count, unit, words }) {
  const parts = [`${state.padEnd(WIDTHS[0])}${type.padEnd(WIDTHS[1])}${title}`, `${count} ${unit}`];
  return [...parts, ...(words.length ? [words.join('; ').replaceAll('\n', ' ')] : [])].join(' | ');
}
