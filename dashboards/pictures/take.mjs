#!/usr/bin/env node
// Takes a picture of a Grafana dashboard with the data of a Prometheus server: see README.md and `--help`.
//
// Exit status: 0 if the picture was taken, 1 if something failed, 2 for a wrong command line.
import { writeFileSync } from 'node:fs';

import { readBoard } from './take/board.mjs';
import { Chromium } from './take/chromium.mjs';
import { UsageError } from './take/errors.mjs';
import { HELP, readFlags } from './take/flags.mjs';
import { Prometheus } from './take/prometheus.mjs';
import { answersOf } from './take/queries.mjs';
import { reportOf } from './take/report.mjs';
import { servePage } from './take/server.mjs';
import { fill, valuesOf } from './take/variables.mjs';

async function main() {
  const flags = readFlags(process.argv.slice(2));
  if (flags.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const board = readBoard(flags);
  const prometheus = new Prometheus(flags.prometheus);
  const { texts, titles, shown } = await valuesOf(board, flags, prometheus);
  for (const panel of board.panels) {
    panel.title = fill(panel.title ?? '', titles);
    panel.answers = panel.type === 'row' ? [] : await answersOf(panel, flags, texts, prometheus);
  }
  const { png, panels, faults } = await draw({ ...board, variables: shown }, flags);
  writeFileSync(flags.out, png);
  const report = reportOf({ board, flags, shown, panels });
  if (flags.report) {
    writeFileSync(flags.report, report.text);
  }
  process.stdout.write(`${flags.out}: ${report.summary}\n`);
  const failed = [...report.errors, ...faults];
  failed.forEach((line) => process.stderr.write(`take.mjs: ${line}\n`));
  return failed.length ? 1 : 0;
}

/** Draw a board in Chromium; gives the picture, what the page found in each panel, and errors of the page. */
async function draw(board, flags) {
  const { width, height, theme, note, from, to } = flags;
  const server = await servePage({ board, width, height, theme, note, from, to, last: flags.lastText });
  try {
    const chromium = await Chromium.start(flags.chromium);
    try {
      return await chromium.picture(server.url, width, height);
    } finally {
      await chromium.stop();
    }
  } finally {
    server.close();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  const usage = error instanceof UsageError;
  process.stderr.write(`take.mjs: ${error.message}${usage ? '; see take.mjs --help' : ''}\n`);
  process.exitCode = usage ? 2 : 1;
}
