// Asks the queries of a panel as Grafana's Prometheus data source does: step, alignment and interval variables.
import { durationOf, secondsOf } from './durations.mjs';
import { QueryError } from './prometheus.mjs';
import { fill } from './variables.mjs';

const MARGINS = 50; // of the page and of a panel, in pixels: a panel asks for one point for each pixel inside it
const COLUMNS = 24;
const LEAST_POINTS = 50;
const MOST_POINTS = 11_000; // of a series, in Prometheus
const SCRAPES_OF_A_RATE = 4;

/** Steps that Grafana rounds to, in seconds; it takes the nearest one. */
const STEPS = [
  ...[0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600],
  ...[7200, 10_800, 21_600, 43_200, 86_400, 604_800],
];

/**
 * Ask all queries of a panel that are not hidden.
 *
 * Gives a list of answers: the `target` with its final `expr`, the `step` in seconds, and `series` or an `error`.
 */
export async function answersOf(panel, flags, texts, prometheus) {
  const answers = [];
  for (const target of (panel.targets ?? []).filter((one) => !one.hide && one.expr)) {
    const timing = timingOf(panel, target, flags);
    const asked = { ...target, expr: fill(target.expr, { ...texts, ...intervalTexts(timing, flags) }) };
    answers.push(await answerOf(asked, timing, flags, prometheus));
  }
  return answers;
}

async function answerOf(target, { step }, { from, to }, prometheus) {
  const aligned = (time) => Math.floor(time / step) * step;
  const isRange = target.range || !target.instant;
  try {
    const series = [
      ...(isRange ? await prometheus.range(target.expr, aligned(from), aligned(to), step) : []),
      ...(target.instant ? await prometheus.instant(target.expr, to) : []),
    ];
    return { target, step, series };
  } catch (error) {
    if (error instanceof QueryError) {
      return { target, step, series: [], error: error.message };
    }
    throw error;
  }
}

/** Give the interval and the step of a query, and the interval that rates assume, in seconds. */
export function timingOf(panel, target, { from, to, width, scrape }) {
  const pixels = Math.floor((panel.gridPos.w * width) / COLUMNS) - MARGINS;
  const points = panel.maxDataPoints ?? Math.max(LEAST_POINTS, pixels);
  const least = secondsOf(target.interval || String(panel.interval ?? '').replace('>', '')) || scrape;
  const interval = Math.max(rounded((to - from) / points), least, rounded((to - from) / MOST_POINTS));
  return {
    step: interval * (target.intervalFactor || 1),
    interval,
    rate: Math.max(interval + scrape, SCRAPES_OF_A_RATE * scrape),
  };
}

function rounded(seconds) {
  const place = STEPS.findIndex((one, index) => seconds < (one + (STEPS[index + 1] ?? Infinity)) / 2);
  return STEPS[place];
}

function intervalTexts({ interval, rate }, { from, to }) {
  const range = Math.round(to - from);
  return {
    __interval: durationOf(interval),
    __interval_ms: String(Math.round(interval * 1000)),
    __rate_interval: durationOf(rate),
    __range: `${range}s`,
    __range_s: String(range),
    __range_ms: String(range * 1000),
    __from: String(Math.round(from * 1000)),
    __to: String(Math.round(to * 1000)),
  };
}
