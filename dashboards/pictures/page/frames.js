// From answers of Prometheus to data frames: as Grafana's data source makes them, transformed, and with fields ready.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createDataFrame,
  FieldType,
  transformDataFrame,
} from '@grafana/data';

import { configOf, registryOf } from './fields.js';

const SPECIAL = { NaN, '+Inf': Infinity, '-Inf': -Infinity };

/** Give the frames of a panel, which it draws. */
export async function framesOf(panel, theme) {
  const isTable = (answer) => answer.target.format === 'table';
  const tables = panel.answers.filter(isTable);
  const made = [
    ...panel.answers.filter((one) => !isTable(one)).flatMap((one) => seriesFrames(one, panel.type)),
    ...tableFrames(tables),
  ];
  const fieldConfig = configOf(panel);
  const ready = applyFieldOverrides({
    data: await transformed(panel.transformations ?? [], made),
    fieldConfig,
    fieldConfigRegistry: registryOf(fieldConfig),
    replaceVariables: (text) => text,
    timeZone: 'utc',
    theme,
  });
  cacheFieldDisplayNames(ready);
  return ready;
}

async function transformed(transformations, frames) {
  const active = transformations.filter((one) => !one.disabled);
  const context = { interpolate: (text) => text };
  return new Promise((done, fail) => {
    transformDataFrame(active, frames, context).subscribe({ next: done, error: fail });
  });
}

/** Make one frame for each series; of a graph, what is no finite number is a gap. */
function seriesFrames({ target, step, series }, type) {
  if (!series.length) {
    return [createDataFrame({ refId: target.refId, fields: [] })];
  }
  const read = type === 'timeseries' ? (text) => (Number.isFinite(Number(text)) ? Number(text) : null) : numberOf;
  return series.map(({ metric, values, value }) => {
    const points = values ?? [value];
    const { __name__, ...labels } = metric;
    const name = nameOf(metric, target);
    const config = name ? { displayNameFromDS: name } : {};
    return createDataFrame({
      name,
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, config: { interval: step * 1000 }, values: points.map(timeOf) },
        { name: 'Value', type: FieldType.number, labels, config, values: points.map(([, text]) => read(text)) },
      ],
    });
  });
}

/** Name a series by the legend of its query; without one by its name and labels. */
function nameOf(metric, { legendFormat, expr }) {
  if (legendFormat === '__auto') {
    return Object.keys(metric).length ? undefined : expr;
  }
  if (legendFormat) {
    return legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => metric[label] ?? '');
  }
  const { __name__: name = '', ...labels } = metric;
  const pairs = Object.entries(labels).map(([label, value]) => `${label}=${JSON.stringify(value)}`);
  return pairs.length ? `${name}{${pairs.sort().join(', ')}}` : name || expr;
}

/** Make one frame for each query in the format of a table: time, one column for each label, and the value. */
function tableFrames(answers) {
  if (answers.every((one) => !one.series.length)) {
    return answers.map(({ target }) => createDataFrame({ refId: target.refId, fields: [] }));
  }
  return answers.map(({ target, series }) => {
    const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric).sort()))];
    const rows = series.flatMap(({ metric, values, value }) => (values ?? [value]).map((point) => ({ metric, point })));
    return createDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, config: {}, values: rows.map(({ point }) => timeOf(point)) },
        ...labels.map((label) => labelField(label, rows)),
        {
          name: answers.length > 1 ? `Value #${target.refId}` : 'Value',
          type: FieldType.number,
          config: {},
          values: rows.map(({ point: [, text] }) => numberOf(text)),
        },
      ],
    });
  });
}

function labelField(label, rows) {
  const isBound = label === 'le';
  const read = isBound ? numberOf : (text) => text;
  return {
    name: label,
    type: isBound ? FieldType.number : FieldType.string,
    config: { filterable: true },
    values: rows.map(({ metric }) => read(metric[label] ?? '')),
  };
}

const timeOf = ([seconds]) => seconds * 1000;

function numberOf(text) {
  return SPECIAL[text] ?? (text === '' ? null : Number(text));
}
