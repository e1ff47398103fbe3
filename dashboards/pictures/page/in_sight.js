// Finds what a panel shows, and what a reader cannot see of it: cut texts, and rows, columns, bars or legend entries
// that are outside of the panel.
import { FieldType } from '@grafana/data';

import { shownFrame } from './table.jsx';

const SLACK = 2; // pixels by which a box may be larger than what it is in
const MOST_NAMED = 4;

/** Look at a drawn panel; gives its `id`, what it shows (`count` of `unit`), what is `unseen` in words, its `error`. */
export function lookAt(panel) {
  const box = document.querySelector(`[data-panel="${panel.id}"]`);
  const { count, unit } = amountOf(panel);
  const inside = () => (panel.type === 'table' ? ofTable(box, count) : ofOthers(box));
  const unseen = panel.error ? [] : [...cutTitle(box), ...inside()];
  return { id: panel.id, count, unit, unseen, error: panel.error };
}

function amountOf(panel) {
  if (panel.type === 'table') {
    return { count: shownFrame(panel)?.length ?? 0, unit: 'rows' };
  }
  const fields = panel.frames.flatMap((frame) => frame.fields).filter((field) => field.type !== FieldType.time);
  const withValues = fields.filter((field) => field.values.some((one) => one !== null && !Number.isNaN(one)));
  return { count: withValues.length, unit: 'series' };
}

const isCut = (element) =>
  element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== 'visible';

function cutTitle(box) {
  return [...box.querySelectorAll('h2, h2 *')].some(isCut) ? ['its title is cut'] : [];
}

function ofTable(box, count) {
  const grid = box.querySelector('[role="grid"]');
  if (!grid) {
    return [];
  }
  const edge = box.getBoundingClientRect();
  const headers = [...grid.querySelectorAll('[role="columnheader"]')];
  const cells = [...grid.querySelectorAll('[role="gridcell"]')];
  const rows = [...grid.querySelectorAll('[role="row"]')]; // they have no box of their own
  const firsts = rows.map((one) => one.querySelector('[role="gridcell"]')).filter(Boolean);
  const isLost = (one) => one.getBoundingClientRect().right > edge.right + SLACK;
  const seen = firsts.filter((one) => one.getBoundingClientRect().bottom <= edge.bottom + SLACK).length;
  return [
    ...named(headers.filter(isLost), 'columns out of sight'),
    ...named(headers.filter((one) => !isLost(one) && isCutInside(one)), 'headers cut'),
    ...named(cells.filter((one) => !isLost(one) && isCutInside(one)), 'cells cut'),
    ...(seen < count ? [`${seen} of ${count} rows in sight`] : []),
  ];
}

/** Whether a cell, or anything in it, is cut at either side. */
function isCutInside(cell) {
  const { left, right } = cell.getBoundingClientRect();
  const inside = [...cell.querySelectorAll('*')];
  const reachesOut = (one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.left < left - SLACK || box.right > right + SLACK);
  };
  return [cell, ...inside].some(isCut) || inside.some(reachesOut);
}

function ofOthers(box) {
  const legend = [...box.querySelectorAll('[data-testid*="VizLegend series"]')];
  const bars = [...box.querySelectorAll('[data-testid*="Bar gauge value"]')];
  const inside = [...box.querySelectorAll('[data-testid$="panel content"] *')];
  const texts = inside.filter((one) => isText(one) && !legend.some((entry) => entry.contains(one)));
  return [...hidden(legend, 'legend entries'), ...hidden(bars, 'bars'), ...named(texts.filter(isCut), 'texts cut')];
}

const isText = (element) => [...element.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());

/** Count elements that are outside of what they can be scrolled in. */
function hidden(elements, what) {
  const seen = elements.filter((one) => {
    const box = one.getBoundingClientRect();
    return clippersOf(one).every(
      (edge) =>
        box.top >= edge.top - SLACK &&
        box.bottom <= edge.bottom + SLACK &&
        box.left >= edge.left - SLACK &&
        box.right <= edge.right + SLACK
    );
  });
  return seen.length < elements.length ? [`${seen.length} of ${elements.length} ${what} in sight`] : [];
}

function clippersOf(element) {
  const edges = [];
  for (let one = element.parentElement; one && !one.dataset.panel; one = one.parentElement) {
    if (/auto|scroll|hidden|clip/.test(getComputedStyle(one).overflow)) {
      edges.push(one.getBoundingClientRect());
    }
  }
  return edges;
}

function named(elements, what) {
  const texts = [...new Set(elements.map((one) => one.textContent.trim()).filter(Boolean))];
  const more = texts.length > MOST_NAMED ? ` and ${texts.length - MOST_NAMED} more` : '';
  return texts.length ? [`${what}: ${texts.slice(0, MOST_NAMED).join(', ')}${more}`] : [];
}
