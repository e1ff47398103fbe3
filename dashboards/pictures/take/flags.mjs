// The command line of take.mjs: its flags, their defaults and their checks.
import { parseArgs } from 'node:util';

import { secondsOf } from './durations.mjs';
import { UsageError } from './errors.mjs';

export const HELP = `usage: node take.mjs BOARD.json --prometheus URL --out PNG [flags]

  --prometheus URL   the Prometheus server that is queried
  --out PNG          the picture
  --report FILE      text: each panel with what it shows, what is empty and what is out of sight
  --var NAME=VALUE   value of a variable, repeatable; several values with commas; All for all
                     (default that of the board, else the first one)
  --last DURATION    time range (default 15m)
  --to UNIX          end of the time range in seconds (default now)
  --scrape DURATION  scrape interval, as it is set in Grafana's data source (default 5s)
  --rows WHICH       saved: as the board has them; closed: all folded; open: none folded;
                     1,2: these alone open, counted from the top (default saved)
  --width PIXELS     width of the window (default 1600)
  --height PIXELS    height of the window: the first screen alone (default the whole page)
  --theme THEME      dark or light (default dark)
  --note TEXT        text beside the title
  --chromium PATH    program of Chromium (default chromium)
  --help             this text
`;

const TEXT = { type: 'string' };
const OPTIONS = {
  prometheus: TEXT,
  out: TEXT,
  report: TEXT,
  var: { type: 'string', multiple: true, default: [] },
  last: { type: 'string', default: '15m' },
  to: TEXT,
  scrape: { type: 'string', default: '5s' },
  rows: { type: 'string', default: 'saved' },
  width: { type: 'string', default: '1600' },
  height: TEXT,
  theme: { type: 'string', default: 'dark' },
  note: { type: 'string', default: '' },
  chromium: { type: 'string', default: 'chromium' },
  help: { type: 'boolean', default: false },
};

/**
 * Read the command line.
 *
 * Times are in seconds since the epoch, `scrape` is in seconds, `rows` is a word or the numbers of the open rows,
 * `height` is null for the whole page.
 */
export function readFlags(words) {
  const { values, positionals } = parsed(words);
  if (values.help) {
    return { help: true };
  }
  if (positionals.length !== 1) {
    throw new UsageError(`expected one BOARD.json, not ${positionals.length}`);
  }
  for (const name of ['prometheus', 'out'].filter((one) => !values[one])) {
    throw new UsageError(`--${name} is missing`);
  }
  const to = values.to === undefined ? Date.now() / 1000 : number('--to', values.to);
  return {
    ...values,
    file: positionals[0],
    prometheus: address(values.prometheus),
    variables: new Map(values.var.map(variable)),
    to,
    from: to - duration('--last', values.last),
    lastText: values.last,
    scrape: duration('--scrape', values.scrape),
    rows: rows(values.rows),
    width: number('--width', values.width),
    height: values.height === undefined ? null : number('--height', values.height),
    theme: oneOf('--theme', values.theme, ['dark', 'light']),
  };
}

function parsed(words) {
  try {
    return parseArgs({ args: words, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError(error.message.split('\n')[0].replace(/\. To specify.*/, ''));
  }
}

function address(text) {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new UsageError(`--prometheus: ${text} is not an http URL`);
  }
  return text.replace(/\/+$/, '');
}

function variable(text) {
  const [, name, values] = /^(\w+)=(.+)$/.exec(text) ?? [];
  if (!name) {
    throw new UsageError(`--var: ${text} is not NAME=VALUE`);
  }
  return [name, values.split(',')];
}

function duration(flag, text) {
  const seconds = secondsOf(text);
  if (!(seconds > 0)) {
    throw new UsageError(`${flag}: ${text} is not a duration such as 15m`);
  }
  return seconds;
}

function number(flag, text) {
  if (!/^\d+(\.\d+)?$/.test(text) || Number(text) <= 0) {
    throw new UsageError(`${flag}: ${text} is not a positive number`);
  }
  return Number(text);
}

function rows(text) {
  if (/^\d+(,\d+)*$/.test(text)) {
    return text.split(',').map(Number);
  }
  return oneOf('--rows', text, ['saved', 'closed', 'open']);
}

function oneOf(flag, text, allowed) {
  if (!allowed.includes(text)) {
    throw new UsageError(`${flag}: ${text} is none of ${allowed.join(', ')}`);
  }
  return text;
}
