// A client of Prometheus's HTTP API: instant queries, range queries and values of labels.
export class Prometheus {
  #address;

  constructor(address) {
    this.#address = address;
  }

  /** Give the result of an instant query: a list of series, each with one `value`. */
  async instant(query, time) {
    return series(await this.#ask('query', { query, time }));
  }

  /** Give the result of a range query: a list of series, each with `values`. */
  async range(query, start, end, step) {
    return series(await this.#ask('query_range', { query, start, end, step }));
  }

  /** Give the values of a label in a time range, of all series or of those that a selector matches. */
  async labelValues(label, selector, start, end) {
    const limits = selector ? { start, end, 'match[]': selector } : { start, end };
    return this.#ask(`label/${label}/values?${new URLSearchParams(limits)}`);
  }

  async #ask(path, form) {
    const request = form ? { method: 'POST', body: new URLSearchParams(form) } : {};
    let response;
    try {
      response = await fetch(`${this.#address}/api/v1/${path}`, request);
    } catch (error) {
      throw new Error(`${this.#address} does not respond: ${error.cause?.message ?? error.message}`);
    }
    const answer = await response.json().catch(() => ({}));
    if (answer.status !== 'success') {
      throw new QueryError(answer.error ?? `${this.#address} answered with HTTP ${response.status}`);
    }
    return answer.data;
  }
}

/** Prometheus refused or could not run a query. */
export class QueryError extends Error {}

function series({ resultType, result }) {
  return resultType === 'scalar' || resultType === 'string' ? [{ metric: {}, value: result }] : result;
}
