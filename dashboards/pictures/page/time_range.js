// The time range of a page, as Grafana's components expect it.
import { dateTime } from '@grafana/data';

/** Make it of `from` and `to`, which are seconds since the epoch. */
export function timeRangeOf({ from, to }) {
  const [first, last] = [dateTime(from * 1000), dateTime(to * 1000)];
  return { from: first, to: last, raw: { from: first, to: last } };
}
