/**
 * The live page of the admin port. It reads /stats.json once a second, keeps the samples of two
 * minutes, and draws rates, percentiles and tables. The browser runs this file as it is. The page
 * adds values as text nodes only, so a label cannot become markup.
 */
(() => {
  const POLL_MS = 1000;
  const WINDOW_SEC = 10;
  const KEPT_SEC = 120;
  /** Groups of the chart, bottom first: title, colour, and the label values that the group sums. */
  const GROUPS = {
    ingest: [
      ['accepted', 'good', ['accepted']],
      ['filtered or empty', 'calm', ['filtered', 'empty']],
      ['limited', 'warn', ['rate_limited', 'quota_exceeded']],
      [
        'refused',
        'other',
        ['unauthenticated', 'forbidden_key', 'unknown_token', 'invalid', 'too_large', 'too_slow', 'aborted'],
      ],
      ['in trouble', 'bad', ['overloaded', 'limiter_unavailable', 'failed']],
    ],
    processor: [
      ['stored', 'good', ['stored']],
      ['resent', 'calm', ['resent']],
      ['dead letters', 'bad', ['dead_letter']],
    ],
  };
  const samples = [];
  const $ = (id) => document.getElementById(id);

  /** Makes an element with text or children. */
  function el(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function svg(tag, attributes = {}, ...children) {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // ---- Figures ----

  const valuesOf = (sample, name) => sample.metrics.find((metric) => metric.name === name)?.values ?? [];
  const total = (sample, name, match = () => true) =>
    valuesOf(sample, name).reduce((sum, { labels, value }) => (match(labels) ? sum + value : sum), 0);

  /** Returns the oldest sample that is at most WINDOW_SEC older than the newest. */
  const windowStart = () => {
    const newest = samples.at(-1);
    return samples.find(({ at }) => newest.at - at <= (WINDOW_SEC + 0.5) * 1000) ?? newest;
  };

  /**
   * Returns how much a counter rose per second between two samples; 0 when the counter fell, which
   * happens when its process has started anew.
   */
  function rate(from, to, [name, match]) {
    const seconds = (to.at - from.at) / 1000;
    const risen = total(to, name, match) - total(from, name, match);
    return seconds > 0 ? Math.max(0, risen) / seconds : 0;
  }
  const rateNow = (name, match) => rate(windowStart(), samples.at(-1), [name, match]);

  /**
   * Returns how many observations each bucket of a histogram got between the first and the last
   * sample of the window: [upper bound, count], not cumulative.
   */
  function bucketsNow(name) {
    const [from, to] = [windowStart(), samples.at(-1)].map(
      (sample) =>
        new Map(
          valuesOf(sample, name)
            .filter(({ labels }) => 'le' in labels)
            .map(({ labels, value }) => [labels.le, value]),
        ),
    );
    let below = 0;
    return [...to].map(([le, value]) => {
      const cumulative = Math.max(0, value - (from.get(le) ?? 0));
      const count = cumulative - below;
      below = cumulative;
      return [le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le), count];
    });
  }

  /**
   * Returns a quantile, interpolated within its bucket; undefined without observations. In the last
   * bucket, which has no upper bound, it is the lower bound.
   */
  function quantile(buckets, share) {
    const wanted = share * buckets.reduce((sum, [, count]) => sum + count, 0);
    let seen = 0;
    let lower = 0;
    if (wanted === 0) return undefined;
    for (const [upper, count] of buckets) {
      if (seen + count >= wanted)
        return Number.isFinite(upper) ? lower + ((upper - lower) * (wanted - seen)) / count : lower;
      seen += count;
      lower = upper;
    }
    return lower;
  }

  // ---- Text ----

  const short = (value) => {
    if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
    if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
    return value >= 100 || Number.isInteger(value) ? `${Math.round(value)}` : value.toFixed(1);
  };
  const whole = (value) => Math.round(value).toLocaleString('en');
  const bytes = (value) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    const power = value < 1 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
    return `${(value / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
  };
  const seconds = (value) => {
    if (value === undefined) return '–';
    if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
    return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  };

  // ---- Parts of the page ----

  const card = (title, value, note = '') =>
    el('div', { class: 'card' }, el('span', {}, title), el('b', {}, value), el('small', {}, note));

  function panel(title, heads, rows) {
    const body = el('section', { class: 'panel' }, el('h2', {}, title));
    if (rows.length === 0) {
      body.append(el('p', { class: 'empty' }, 'nothing yet'));
      return body;
    }
    const head = el('tr', {}, ...heads.map((text) => el('th', { scope: 'col' }, text)));
    const lines = rows.map((cells) => el('tr', {}, ...cells.map((cell) => el('td', {}, cell))));
    body.append(el('table', { 'aria-label': title }, el('thead', {}, head), el('tbody', {}, ...lines)));
    return body;
  }

  /** Returns [value, rate, total] for each value of a label, except where the total is 0. */
  function byLabel(name, label) {
    const newest = samples.at(-1);
    const names = [...new Set(valuesOf(newest, name).map(({ labels }) => labels[label]))];
    return names
      .map((value) => [value, (labels) => labels[label] === value])
      .map(([value, match]) => [value, rateNow(name, match), total(newest, name, match)])
      .filter(([, , sum]) => sum > 0)
      .sort((a, b) => b[2] - a[2])
      .map(([value, perSecond, sum]) => [value, short(perSecond), whole(sum)]);
  }

  const latencyRow = (title, name) => {
    const buckets = bucketsNow(name);
    return [title, ...[0.5, 0.95, 0.99].map((share) => seconds(quantile(buckets, share)))];
  };

  function usageCell({ usage, quota }) {
    if (!usage) return '–';
    if (quota === undefined) return whole(usage.position);
    const cell = el('span', {}, `${whole(usage.position)} of ${whole(quota)}`);
    cell.append(
      el('meter', {
        min: '0',
        max: `${quota}`,
        high: `${quota * 0.75}`,
        value: `${Math.min(usage.position, quota)}`,
        'aria-label': 'share of the quota',
      }),
    );
    return cell;
  }

  // ---- The two services ----

  function showIngest(newest) {
    const buckets = bucketsNow('sluice_request_duration_seconds');
    const requests = rateNow('sluice_requests_total');
    const accepted = rateNow('sluice_requests_total', ({ outcome }) => outcome === 'accepted');
    const restarts = total(newest, 'sluice_worker_restarts_total');
    $('cards').replaceChildren(
      card('requests / s', short(requests), `${whole(total(newest, 'sluice_requests_total'))} in all`),
      card(
        'accepted / s',
        short(accepted),
        requests > 0 ? `${Math.round((100 * accepted) / requests)} %` : '',
      ),
      card('latency, p95', seconds(quantile(buckets, 0.95)), `p50 ${seconds(quantile(buckets, 0.5))}`),
      card('received / s', bytes(rateNow('sluice_bytes_total')), 'as transmitted'),
      card('in flight', whole(total(newest, 'sluice_inflight_requests')), 'requests'),
      card('workers', whole(total(newest, 'sluice_workers')), `${whole(restarts)} restarts`),
    );
    const perFrame = rateNow('sluice_publishes_total');
    const memory = ['sluice_buffered_bytes', 'sluice_spooled_bytes'].map((name) => total(newest, name));
    $('panels').replaceChildren(
      panel('Outcomes', ['outcome', '/ s', 'total'], byLabel('sluice_requests_total', 'outcome')),
      panel(
        'Latency',
        ['step', 'p50', 'p95', 'p99'],
        [
          latencyRow('request', 'sluice_request_duration_seconds'),
          latencyRow('Redis call', 'sluice_redis_call_duration_seconds'),
          latencyRow('publish to ack', 'sluice_publish_duration_seconds'),
        ],
      ),
      panel('Stored items', ['type', '/ s', 'total'], byLabel('sluice_items_total', 'type')),
      panel(
        'Inside',
        ['figure', 'now'],
        [
          ['held in memory', bytes(memory[0])],
          ['spooled to disk', bytes(memory[1])],
          ['messages published / s', short(perFrame)],
          ['envelopes per message', perFrame > 0 ? short(accepted / perFrame) : '–'],
          ['Redis calls / s', short(rateNow('sluice_redis_calls_total'))],
        ],
      ),
    );
    $('projects').replaceChildren(
      panel(
        'Projects, since the workers started',
        ['project', 'requests', 'accepted', 'limited', 'usage this month'],
        newest.projects.map((project) => [
          project.id,
          whole(project.requests),
          whole(project.accepted),
          whole(project.limited),
          usageCell(project),
        ]),
      ),
    );
  }

  function showProcessor(newest) {
    const pending = valuesOf(newest, 'sluice_pending_messages');
    const lost = total(newest, 'sluice_processed_total', ({ result }) => result === 'dead_letter');
    const stored = ({ result }) => result === 'stored';
    $('cards').replaceChildren(
      card(
        'stored / s',
        short(rateNow('sluice_processed_total', stored)),
        `${whole(total(newest, 'sluice_processed_total', stored))} items in all`,
      ),
      card('lag', seconds(total(newest, 'sluice_processing_lag_seconds')), 'age of the oldest in hand'),
      card('pending', whole(total(newest, 'sluice_pending_messages')), 'messages in the streams'),
      card('dead letters', whole(lost), 'since the start'),
    );
    $('panels').replaceChildren(
      panel('Items by type', ['type', '/ s', 'total'], byLabel('sluice_processed_total', 'type')),
      panel('What became of them', ['result', '/ s', 'total'], byLabel('sluice_processed_total', 'result')),
      panel(
        'Pending messages',
        ['stream', 'now'],
        pending.map(({ labels, value }) => [labels.stream, whole(value)]),
      ),
    );
  }

  // ---- The chart: stacked areas, one step for each second ----

  function stack(role) {
    const [name, label] =
      role === 'ingest' ? ['sluice_requests_total', 'outcome'] : ['sluice_processed_total', 'result'];
    const base = samples.slice(1).map(() => 0);
    return GROUPS[role].map(([title, colour, members]) => {
      const lower = [...base];
      const match = (labels) => members.includes(labels[label]);
      samples.slice(1).forEach((sample, at) => {
        base[at] += rate(samples[at], sample, [name, match]);
      });
      return { title, colour, lower, upper: [...base] };
    });
  }

  /** Rounds up to a number that is easy to read. */
  function niceCeiling(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
    return [1, 1.5, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((top) => top >= value) ?? value;
  }

  function draw(role) {
    const bands = stack(role);
    const top = niceCeiling(Math.max(1, ...(bands.at(-1)?.upper ?? [])));
    const newest = samples.at(-1).at;
    const x = (at) => 1000 - (1000 * (newest - samples[at + 1].at)) / (KEPT_SEC * 1000);
    const y = (value) => 220 - (220 * value) / top;
    const lines = [0.25, 0.5, 0.75].map((share) =>
      svg('line', { x1: 0, x2: 1000, y1: 220 * share, y2: 220 * share, class: 'grid' }),
    );
    const areas = bands.map(({ colour, lower, upper }) => {
      const there = upper.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
      const back = lower.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).reverse();
      return svg('polygon', { points: [...there, ...back].join(' '), class: `fill-${colour}` });
    });
    $('chart').replaceChildren(...lines, ...areas);
    const unit = role === 'ingest' ? 'Requests' : 'Items';
    $('chart-title').textContent = `${unit} per second, last two minutes (top line ${short(top)})`;
    $('legend').replaceChildren(
      ...bands.map(({ title, colour, lower, upper }) => {
        const now = (upper.at(-1) ?? 0) - (lower.at(-1) ?? 0);
        return el('li', {}, el('i', { class: `fill-${colour}` }), `${title} ${short(now)}`);
      }),
    );
  }

  // ---- The loop ----

  function show(newest) {
    const { status, checks } = newest.readiness;
    $('role').textContent = newest.role;
    document.title = `sluice ${newest.role}`;
    $('checks').replaceChildren(
      el('li', { class: status === 'ready' ? 'good' : '' }, status),
      ...Object.entries(checks).map(([name, state]) =>
        el('li', { class: state === 'ok' ? 'good' : '' }, `${name} ${state}`),
      ),
    );
    $('main').hidden = false;
    draw(newest.role);
    if (newest.role === 'ingest') showIngest(newest);
    else showProcessor(newest);
    if (newest.role === 'ingest') manage.open();
  }

  /** Key of the admin token in sessionStorage, which keeps it for this tab alone. */
  const TOKEN = 'sluice-token';
  const authorization = () => {
    const token = sessionStorage.getItem(TOKEN);
    return token ? { Authorization: `Bearer ${token}` } : {};
  };

  let answeredAt = 'the page was opened';
  /**
   * Sets the text that a screen reader speaks when it changes. The text is set only when it
   * differs, and has no number that changes every second.
   */
  function speak(text) {
    if ($('spoken').textContent !== text) $('spoken').textContent = text;
  }

  let isPolling = true;
  function askForToken() {
    isPolling = false;
    $('login').hidden = false;
    $('updated').className = 'lost';
    $('updated').textContent = sessionStorage.getItem(TOKEN) ? 'this token is unknown' : 'a token is needed';
  }

  $('login').addEventListener('submit', (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, $('token').value.trim());
    $('token').value = '';
    $('login').hidden = true;
    manage.refresh();
    if (!isPolling) poll();
  });

  async function poll() {
    isPolling = true;
    try {
      const answer = await fetch('/stats.json', { cache: 'no-store', headers: authorization() });
      if (answer.status === 401) return askForToken();
      if (!answer.ok) throw new Error(`${answer.status}`);
      samples.push({ ...(await answer.json()), at: performance.now() });
      while (samples.length > 0 && samples.at(-1).at - samples[0].at > KEPT_SEC * 1000) samples.shift();
      show(samples.at(-1));
      answeredAt = new Date().toLocaleTimeString('en-GB');
      $('updated').className = '';
      $('updated').textContent = `updated ${answeredAt}`;
      $('checks').className = '';
      speak(samples.at(-1).readiness.status);
    } catch (error) {
      $('updated').className = 'lost';
      $('updated').textContent = `no answer since ${answeredAt}: ${error.message}`;
      $('checks').className = 'stale';
      speak(`no answer since ${answeredAt}`);
    }
    setTimeout(poll, POLL_MS);
  }

  const groups = GROUPS.ingest;
  const manage = management({ $, el, svg, panel, usageCell, whole, bytes, groups, authorization });
  // Lets the keyboard scroll this table.
  $('projects').tabIndex = 0;
  $('window').textContent = `${WINDOW_SEC}`;
  poll();
})();
