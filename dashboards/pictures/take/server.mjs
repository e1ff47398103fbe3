// Serves the page to Chromium on a free port of loopback: the bundle, Grafana's icons and the board with its data.
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('..', import.meta.url));
const BUNDLE = join(FOLDER, 'dist');
const ICONS = join(FOLDER, 'node_modules', '@grafana', 'ui', 'dist', 'public', 'img', 'icons');
const ICONS_PATH = '/public/build/img/icons/';
const BOARD_PATH = '/board.json';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
  '.woff': 'font/woff',
};

/** Start the server; gives its `url`, and `close`. */
export async function servePage(given) {
  if (!existsSync(join(BUNDLE, 'index.html'))) {
    throw new Error('the page is not built: run `npm ci --ignore-scripts && npx vite build` in dashboards/pictures');
  }
  const board = JSON.stringify(given);
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://loopback');
    if (pathname === BOARD_PATH) {
      response.writeHead(200, { 'content-type': 'application/json' }).end(board);
      return;
    }
    const file = fileOf(pathname);
    if (file) {
      response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
      response.end(readFileSync(file));
    } else {
      response.writeHead(404).end();
    }
  });
  await new Promise((done, fail) => server.once('error', fail).listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${server.address().port}/`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function fileOf(pathname) {
  const isIcon = pathname.startsWith(ICONS_PATH);
  const folder = isIcon ? ICONS : BUNDLE;
  const inside = isIcon ? pathname.slice(ICONS_PATH.length) : pathname.slice(1) || 'index.html';
  const file = resolve(folder, decodeURIComponent(inside));
  return file.startsWith(folder + sep) && existsSync(file) ? file : null;
}
