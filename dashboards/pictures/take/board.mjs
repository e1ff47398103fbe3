// Reads a board and lays it out: which rows are open, where panels are, and which links the head has.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { UsageError } from './errors.mjs';

const COLUMNS = 24;

/** Read the board, with rows folded as the flags have it; `panels` are rows and visible panels from top to bottom. */
export function readBoard(flags) {
  const board = read(flags.file);
  return { ...board, links: linksOf(board, flags.file), panels: compacted(folded(board.panels, flags.rows)) };
}

function read(file) {
  let board;
  try {
    board = JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`${file}: ${error.message}`);
  }
  if (!Array.isArray(board?.panels)) {
    throw new UsageError(`${file} is not a dashboard in Grafana's classic JSON: it has no panels`);
  }
  return board;
}

/** Fold and unfold rows. A row gets `hidden`, the number of panels in it, if it is folded. */
function folded(panels, wanted) {
  const groups = groupsOf(panels);
  const count = groups.filter((one) => one.row).length;
  for (const number of Array.isArray(wanted) ? wanted.filter((one) => one < 1 || one > count) : []) {
    throw new UsageError(`--rows: there is no row ${number}, the board has ${count}`);
  }
  const placed = [];
  let bottom = 0;
  let number = 0;
  for (const { row, inside } of groups) {
    if (!row) {
      placed.push(...inside);
      bottom = bottomOf(inside, bottom);
      continue;
    }
    number += 1;
    const isOpen = opens(row, number, wanted);
    placed.push({ ...row, gridPos: { x: 0, y: bottom, w: COLUMNS, h: 1 }, collapsed: !isOpen, hidden: inside.length });
    bottom += 1;
    if (isOpen) {
      const shift = bottom - Math.min(...inside.map((one) => one.gridPos.y));
      const moved = inside.map((one) => ({ ...one, gridPos: { ...one.gridPos, y: one.gridPos.y + shift } }));
      placed.push(...moved);
      bottom = bottomOf(moved, bottom);
    }
  }
  return placed;
}

function opens(row, number, wanted) {
  if (Array.isArray(wanted)) {
    return wanted.includes(number);
  }
  return wanted === 'saved' ? !row.collapsed : wanted === 'open';
}

/** List the rows, each with the panels in it, wherever the board stores those; panels above the first have no row. */
function groupsOf(panels) {
  const groups = [{ row: null, inside: [] }];
  for (const panel of [...panels].sort(byPlace)) {
    if (panel.type === 'row') {
      const { panels: stored = [], ...row } = panel;
      groups.push({ row, inside: [...stored].sort(byPlace) });
    } else {
      groups.at(-1).inside.push(panel);
    }
  }
  return groups;
}

const byPlace = (one, other) => one.gridPos.y - other.gridPos.y || one.gridPos.x - other.gridPos.x;

const bottomOf = (panels, least) => Math.max(least, ...panels.map(({ gridPos: { y, h } }) => y + h));

/** Move each panel up until it is below another one, as the grid of Grafana does. */
function compacted(panels) {
  const filled = new Array(COLUMNS).fill(0);
  return [...panels].sort(byPlace).map((panel) => {
    const { x, w, h } = panel.gridPos;
    const y = Math.max(...filled.slice(x, x + w));
    filled.fill(y + h, x, x + w);
    return { ...panel, gridPos: { ...panel.gridPos, y } };
  });
}

/** Give the titles of the links in the head; a link by tags is one link for each board in the same folder. */
function linksOf(board, file) {
  return (board.links ?? []).flatMap((link) => {
    if (link.type !== 'dashboards' || link.asDropdown) {
      return [link.title];
    }
    const names = readdirSync(dirname(file)).filter((name) => name.endsWith('.json'));
    const others = names.map((name) => read(join(dirname(file), name)));
    return others.filter(({ tags = [] }) => link.tags.every((tag) => tags.includes(tag))).map((one) => one.title);
  });
}
