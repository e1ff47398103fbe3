// A headless Chromium with a temporary profile, driven over pipes by the DevTools protocol.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getuid } from 'node:process';

const PATIENCE = 120_000; // milliseconds until a picture is given up
const LAST_WORDS = 5_000; // milliseconds in which the program has to end when it is asked to
const WHOLE_PAGE = 100; // least height of the window in pixels, while the height of the page is unknown

/** Nothing but the page is fetched, and nothing is asked. */
const SWITCHES = [
  '--headless=new',
  '--remote-debugging-pipe',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-extensions',
  '--disable-sync',
  '--hide-scrollbars',
  '--mute-audio',
  '--no-default-browser-check',
  '--no-first-run',
  '--lang=en-US',
];

export class Chromium {
  #process;
  #profile;
  #ended;
  #why = ''; // why it ended
  #answers = new Map();
  #last = 0;
  #errors = '';
  #faults = [];

  /** Start the program; fails if it cannot be started. */
  static async start(program) {
    const browser = new Chromium();
    browser.#profile = mkdtempSync(join(tmpdir(), 'fabric-pictures-'));
    const asRoot = getuid?.() === 0 ? ['--no-sandbox'] : []; // Chromium has no sandbox for root
    browser.#process = spawn(program, [...SWITCHES, ...asRoot, `--user-data-dir=${browser.#profile}`, 'about:blank'], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    });
    browser.#listen(program);
    try {
      await browser.#send('Browser.getVersion');
    } catch (error) {
      await browser.stop();
      throw error;
    }
    return browser;
  }

  /** Load the page, wait until it is drawn, and give the picture, what the page found, and its errors. */
  async picture(url, width, height) {
    const { targetId } = await this.#send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.#send('Target.attachToTarget', { targetId, flatten: true });
    const send = (method, parameters) => this.#send(method, parameters, sessionId);
    const resize = (pixels) =>
      send('Emulation.setDeviceMetricsOverride', { width, height: pixels, deviceScaleFactor: 1, mobile: false });
    await send('Runtime.enable');
    await send('Page.enable');
    await send('Emulation.setTimezoneOverride', { timezoneId: 'UTC' });
    await resize(height ?? WHOLE_PAGE);
    const loaded = this.#once('Page.loadEventFired', sessionId);
    await send('Page.navigate', { url });
    await loaded;
    const page = await this.#evaluate(send, 'window.layout');
    await resize(height ?? page.height);
    const found = await this.#evaluate(send, 'window.drawn()');
    const { data } = await send('Page.captureScreenshot', { format: 'png', optimizeForSpeed: false });
    return { png: Buffer.from(data, 'base64'), panels: found, faults: [...new Set(this.#faults)] };
  }

  /** End the program and remove its profile. */
  async stop() {
    if (this.#process.pid && !this.#why) {
      const late = setTimeout(() => this.#process.kill('SIGKILL'), LAST_WORDS);
      await this.#send('Browser.close').catch(() => this.#process.kill('SIGTERM'));
      await this.#ended;
      clearTimeout(late);
    }
    // Processes that the program started may still write there for a moment.
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }

  #listen(program) {
    const [, , errors, input, output] = this.#process.stdio;
    errors.on('data', (chunk) => (this.#errors = (this.#errors + chunk).slice(-2_000)));
    input.on('error', () => {}); // the end of the program is noticed below
    let rest = '';
    output.setEncoding('utf8').on('data', (chunk) => {
      const messages = (rest + chunk).split('\0');
      rest = messages.pop();
      messages.forEach((text) => this.#take(JSON.parse(text)));
    });
    this.#ended = new Promise((done) => {
      this.#process.once('error', (error) => done(`${program} cannot be started: ${error.message}`));
      this.#process.once('exit', (code, signal) => done(`${program} ended (${signal ?? code}) ${this.#errors.trim()}`));
    });
    this.#ended.then((why) => {
      this.#why = why;
      this.#answers.forEach(({ fail }) => fail(new Error(why)));
    });
  }

  #take({ id, method, params, sessionId, result, error }) {
    const waiting = this.#answers.get(id ?? `${sessionId} ${method}`);
    if (error) {
      waiting?.fail(new Error(`Chromium: ${error.message}`));
    } else {
      waiting?.done(result ?? params);
    }
    if (method === 'Runtime.exceptionThrown') {
      const { exception, text } = params.exceptionDetails;
      this.#faults.push(`the page failed: ${(exception?.description ?? text).split('\n')[0]}`);
    }
  }

  #send(method, parameters = {}, sessionId = undefined) {
    if (this.#why) {
      return Promise.reject(new Error(this.#why));
    }
    const id = ++this.#last;
    const answer = this.#wait(id, method);
    this.#process.stdio[3].write(`${JSON.stringify({ id, method, params: parameters, sessionId })}\0`);
    return answer;
  }

  #once(method, sessionId) {
    return this.#wait(`${sessionId} ${method}`, method);
  }

  #wait(key, what) {
    return new Promise((done, fail) => {
      const end = (settle) => (value) => {
        clearTimeout(late);
        this.#answers.delete(key);
        settle(value);
      };
      const given = `Chromium: no answer to ${what} in ${PATIENCE / 1000} s`;
      const late = setTimeout(() => end(fail)(new Error(given)), PATIENCE);
      this.#answers.set(key, { done: end(done), fail: end(fail) });
    });
  }

  async #evaluate(send, expression) {
    const { result, exceptionDetails } = await send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) {
      throw new Error(`the page failed: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    }
    return result.value;
  }
}
