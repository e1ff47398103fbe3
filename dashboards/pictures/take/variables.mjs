// Values of the variables of a board, in the form in which Grafana's Prometheus data source puts them into queries.
import { UsageError } from './errors.mjs';

const ALL = '$__all';
const natural = new Intl.Collator('en', { numeric: true }).compare;

/**
 * Find the values of all variables, in their order, as a query may use those before.
 *
 * Gives `texts`, what is put into queries by the name of a variable, `titles`, what is put into titles, and `shown`,
 * for the head of the page.
 */
export async function valuesOf(board, flags, prometheus) {
  const list = board.templating?.list ?? [];
  for (const name of [...flags.variables.keys()].filter((one) => list.every((variable) => variable.name !== one))) {
    throw new UsageError(`--var: the board has no variable ${name}`);
  }
  const [texts, titles, shown] = [{}, {}, []];
  for (const variable of list) {
    const options = await optionsOf(variable, texts, flags, prometheus);
    const { values, isAll } = chosen(variable, options, flags.variables.get(variable.name));
    texts[variable.name] = isAll && variable.allValue ? variable.allValue : written(variable, values);
    const text = isAll ? 'All' : values.join(' + ') || 'None';
    titles[variable.name] = text;
    if (![2, 'hideVariable'].includes(variable.hide)) {
      shown.push({ name: variable.name, label: variable.label || variable.name, text, count: options.length });
    }
  }
  return { texts, titles, shown };
}

/** Put values in the place of $name, ${name}, ${name:format} and [[name]]; what has no value stays. */
export function fill(text, texts) {
  const form = /\$\{(\w+)(?:[.:][^}]*)?\}|\$(\w+)|\[\[(\w+)(?::\w+)?\]\]/g;
  return text.replace(form, (whole, ...names) => texts[names.slice(0, 3).find(Boolean)] ?? whole);
}

async function optionsOf(variable, texts, flags, prometheus) {
  switch (variable.type) {
    case 'datasource':
      return ['Prometheus'];
    case 'custom':
    case 'interval':
      return (variable.query ?? '').split(',').map((one) => one.trim()).filter(Boolean);
    case 'constant':
    case 'textbox':
      return [variable.query ?? ''];
    case 'query':
      return matched(variable, await queried(variable, texts, flags, prometheus));
    default:
      throw new Error(`variable ${variable.name} has the type ${variable.type}, which is not known`);
  }
}

async function queried(variable, texts, flags, prometheus) {
  const query = fill(typeof variable.query === 'string' ? variable.query : (variable.query?.query ?? ''), texts);
  const [, selector, label] = /^\s*label_values\(\s*(?:(.+),)?\s*(\w+)\s*\)\s*$/s.exec(query) ?? [];
  if (!label) {
    throw new Error(`variable ${variable.name} has the query ${query}, which is not known`);
  }
  const values = await prometheus.labelValues(label, selector?.trim(), flags.from, flags.to);
  return values.sort(natural);
}

/** Keep what the regular expression of a variable matches: its first group, else all of it. */
function matched({ regex }, values) {
  if (!regex) {
    return values;
  }
  const [, body, modes] = /^\/(.*)\/(\w*)$/s.exec(regex) ?? [null, regex, ''];
  const found = values.map((one) => new RegExp(body, modes.replace('g', '')).exec(one)).filter(Boolean);
  return [...new Set(found.map((one) => one[1] ?? one[0]))];
}

function chosen(variable, options, given) {
  const saved = [variable.current?.value ?? []].flat().filter((one) => one !== '');
  const wanted = given ? given.map((one) => (one === 'All' ? ALL : one)) : saved;
  if (variable.includeAll && (wanted.includes(ALL) || (!given && !wanted.length))) {
    return { values: options, isAll: true };
  }
  if (given) {
    return { values: wanted, isAll: false };
  }
  const valid = wanted.filter((one) => options.includes(one));
  return { values: valid.length ? valid : options.slice(0, 1), isAll: false };
}

/** Write values for a query: as a regular expression where there may be several, else as a string. */
function written(variable, values) {
  if (!variable.multi && !variable.includeAll) {
    return (values[0] ?? '').replaceAll('\\', '\\\\\\\\').replaceAll("'", "\\\\'");
  }
  const escaped = values.map((one) => one.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&'));
  return escaped.length > 1 ? `(${escaped.join('|')})` : (escaped[0] ?? '');
}
