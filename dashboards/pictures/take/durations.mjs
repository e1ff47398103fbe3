// Durations as Prometheus writes them, such as 15m, 1h30m and 500ms.
const UNITS = [
  ['w', 604_800],
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
  ['ms', 0.001],
];
const FORM = /^(?:\d+(?:ms|[wdhms]))+$/;

/** Give the seconds of a duration; NaN if it is none. */
export function secondsOf(text) {
  if (!FORM.test(text)) {
    return NaN;
  }
  const parts = text.matchAll(/(\d+)(ms|[wdhms])/g);
  return [...parts].reduce((sum, [, count, unit]) => sum + count * UNITS.find(([name]) => name === unit)[1], 0);
}

/** Write seconds in the largest unit of which they are a whole number, with milliseconds as the least. */
export function durationOf(seconds) {
  const milliseconds = Math.round(seconds * 1000);
  const [name, size] = UNITS.slice(2).find(([, one]) => milliseconds % Math.round(one * 1000) === 0);
  return `${Math.round(milliseconds / (size * 1000))}${name}`;
}
