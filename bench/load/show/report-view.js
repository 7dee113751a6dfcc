/**
 * Draws the report from the figures in the page. It uses no library. Text gets into the page only
 * by textContent, so nothing that a run recorded can become markup.
 */
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  /**
   * Width of a panel in pixels. Charts are drawn at the real width, so that their letters are
   * readable on a telephone.
   */
  const room = Math.max(260, document.documentElement.clientWidth - 76);
  const isSmall = room < 480;
  const [NARROW, WIDE] = [Math.min(560, room), Math.min(1120, room)];
  const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [240, 56, 24, 12, 30];
  const SERIES = 6;
  const $ = (id) => document.getElementById(id);

  function make(space, tag, attributes, children) {
    const made = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  const el = (tag, attributes = {}, ...children) => make(undefined, tag, attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    make('http://www.w3.org/2000/svg', tag, attributes, children);

  // ---- Figures as text ----

  function number(value) {
    if (!Number.isFinite(value)) return '–';
    const size = Math.abs(value);
    const digits = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2;
    return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }
  const short = (value) => {
    if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
    return value >= 1e4 ? `${Number((value / 1e3).toPrecision(3))} k` : `${Number(value.toPrecision(3))}`;
  };
  const ms = (value) => (value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`);
  const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);
  const pairs = (counts) =>
    Object.entries(counts)
      .map(([name, count]) => `${name}: ${count}`)
      .join(', ') || 'none';

  // ---- Charts ----

  const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  const logarithmic = (low, high, from, to) => {
    const scale = linear(Math.log10(low), Math.log10(high), from, to);
    return (value) => scale(Math.log10(Math.min(high, Math.max(low, value))));
  };

  /** Returns round steps from 0 to the largest value or just above it. */
  function linearTicks(largest, wanted = 4) {
    const rough = Math.max(largest, 1e-9) / wanted;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((factor) => factor * unit >= rough) * unit;
    return Array.from({ length: Math.ceil(largest / step) + 1 }, (_, at) => at * step);
  }
  /** Returns powers of ten around the values, and 2 and 5 times these where there is room. */
  function logTicks(values) {
    const positive = values.filter((value) => value > 0);
    const low = Math.floor(Math.log10(Math.min(...positive, 1)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 1))));
    const factors = high - low > (isSmall ? 1 : 2) ? [1] : [1, 2, 5];
    const ticks = [];
    for (let power = low; power <= high; power++)
      for (const factor of power === high ? [1] : factors) ticks.push(factor * 10 ** power);
    return ticks;
  }

  function axes({ x, y, width = NARROW }) {
    const [right, bottom] = [width - RIGHT, HEIGHT - BOTTOM];
    return [
      ...x.ticks.flatMap(({ at, text }) => [
        svg('line', { class: 'grid', x1: x.scale(at), x2: x.scale(at), y1: TOP, y2: bottom }),
        svg('text', { x: x.scale(at), y: bottom + 14, 'text-anchor': 'middle' }, text),
      ]),
      ...y.ticks.flatMap(({ at, text }) => [
        svg('line', { class: 'grid', x1: LEFT, x2: right, y1: y.scale(at), y2: y.scale(at) }),
        svg('text', { x: LEFT - 5, y: y.scale(at) + 4, 'text-anchor': 'end' }, text),
      ]),
      svg('text', { x: (LEFT + right) / 2, y: HEIGHT - 3, 'text-anchor': 'middle' }, x.label),
    ];
  }

  const line = (points, style) =>
    svg('polyline', {
      class: style,
      style: 'fill: none',
      points: points.map((point) => point.join(',')).join(' '),
    });

  function legend(names, styles) {
    const entries = names.map((name, at) => {
      const mark = svg(
        'svg',
        { viewBox: '0 0 10 10' },
        svg('rect', { class: styles[at], width: 10, height: 10 }),
      );
      return el('li', {}, mark, name);
    });
    return el('ul', { class: 'legend' }, ...entries);
  }

  /**
   * Adds a chart to the page. `styles` has the style of each name. Without names there is no
   * legend.
   */
  function chart(title, parts, { names = [], styles = [], wide = false } = {}) {
    const viewBox = `0 0 ${wide ? WIDE : NARROW} ${HEIGHT}`;
    const drawing = svg('svg', { viewBox, role: 'img', 'aria-label': title }, ...parts);
    const panel = el('div', { class: wide ? 'panel wide' : 'panel' }, el('h2', {}, title), drawing);
    if (names.length > 0) panel.append(legend(names, styles));
    $('charts').append(panel);
  }

  // ---- Over time ----

  const seconds = data.perSecond;
  const lastSecond = Math.max(1, ...seconds.map(({ second }) => second));
  /** Makes the time axis, in seconds. */
  function timeAxis(width) {
    const scale = linear(0, lastSecond, LEFT, width - RIGHT);
    const ticks = linearTicks(lastSecond, width / 100)
      .filter((at) => at <= lastSecond)
      .map((at) => ({ at, text: short(at) }));
    return { scale, ticks, label: 'seconds' };
  }
  const bands = ({ scale }) =>
    data.stages.flatMap(({ name, fromMs, toMs }, at) => {
      if (at % 2 === 0) return [];
      const [from, to] = [fromMs, toMs].map((edge) => scale(Math.min(lastSecond, edge / 1000)));
      const place = { x: from, y: TOP, width: to - from, height: HEIGHT - BOTTOM - TOP };
      return [svg('rect', { class: 'band', ...place }, svg('title', {}, name))];
    });
  /** Returns the style of a status, which is the same in every chart. */
  function statusStyle(status) {
    if (/^[23]/.test(status)) return 's0';
    if (status === '429') return 's2';
    return /^5/.test(status) ? 's3' : 's4';
  }
  const valueAxis = (largest, scaleTo = HEIGHT - BOTTOM) => {
    const ticks = linearTicks(largest);
    return {
      scale: linear(0, ticks.at(-1), scaleTo, TOP),
      ticks: ticks.map((at) => ({ at, text: short(at) })),
    };
  };

  /** Points of the intended rate: the start and the end of each stage. */
  const intended =
    data.loop === 'open'
      ? data.stages.flatMap(({ fromMs, toMs, fromRate, toRate }) => [
          [fromMs / 1000, fromRate],
          [toMs / 1000, toRate],
        ])
      : [];

  function rateChart() {
    const names = [...new Set(seconds.flatMap(({ statuses }) => Object.keys(statuses)))].sort();
    // A second after the end shows its mere count, because nothing else comes in it.
    const rate = ({ late, ms: long }, count) => (late ? count : (count * 1000) / Math.max(1, long));
    const rates = seconds.map((second) => rate(second, sum(second.statuses)));
    const y = valueAxis(Math.max(...rates, ...intended.map(([, rate]) => rate), 1));
    const time = timeAxis(WIDE);
    const width = Math.max(0.5, time.scale(1) - time.scale(0) - (seconds.length > 150 ? 0 : 1));
    const bars = seconds.flatMap((one) => {
      const { second, statuses } = one;
      let below = 0;
      return names.flatMap((name) => {
        const count = statuses[name] ?? 0;
        if (count === 0) return [];
        const [bottom, top] = [y.scale(below), y.scale(below + rate(one, count))];
        below += rate(one, count);
        const bar = svg('rect', {
          class: `area ${statusStyle(name)}${one.late ? ' late' : ''}`,
          x: time.scale(second - 1),
          y: top,
          width,
          height: bottom - top,
        });
        bar.append(
          svg('title', {}, `second ${second}${one.late ? ', after the end' : ''}: ${name}: ${count}`),
        );
        return [bar];
      });
    });
    const plan = line(
      intended.map(([at, rate]) => [time.scale(Math.min(at, lastSecond)), y.scale(rate)]),
      'intended',
    );
    const back = [...bands(time), ...axes({ x: time, y, width: WIDE })];
    const parts = [...back, ...bars, ...(intended.length > 0 ? [plan] : [])];
    const styles = names.map(statusStyle);
    chart('Answers a second by status; dashed: the intended rate', parts, { names, styles, wide: true });
  }

  /**
   * Splits a list into runs of neighbours for which `has` is true. A line is interrupted where
   * nothing was measured.
   */
  function runsOf(all, has) {
    const runs = [[]];
    for (const one of all)
      if (has(one)) runs.at(-1).push(one);
      else if (runs.at(-1).length > 0) runs.push([]);
    return runs.filter((run) => run.length > 0);
  }

  function latencyChart() {
    const values = seconds.flatMap(({ p50Ms, p99Ms }) => [p50Ms, p99Ms]);
    const ticks = logTicks(values);
    const y = {
      scale: logarithmic(ticks[0], ticks.at(-1), HEIGHT - BOTTOM, TOP),
      ticks: ticks.map((at) => ({ at, text: ms(at) })),
    };
    const time = timeAxis(WIDE);
    const lines = [({ p50Ms }) => p50Ms, ({ p99Ms }) => p99Ms].flatMap((of, at) =>
      runsOf(seconds, (second) => of(second) > 0).map((run) =>
        line(
          run.map((second) => [time.scale(second.second - 0.5), y.scale(of(second))]),
          `s${at === 0 ? 1 : 3}`,
        ),
      ),
    );
    const parts = [...bands(time), ...axes({ x: time, y, width: WIDE }), ...lines];
    const names = ['p50', 'p99'];
    const styles = ['s1', 's3'];
    chart('Latency from the intended moment, open requests at their age: p50 and p99 of each second', parts, {
      names,
      styles,
      wide: true,
    });
  }

  // ---- Distribution ----

  function histogramChart() {
    const names = Object.keys(data.distribution).sort();
    const steps = names.flatMap((name) => data.distribution[name].map(([at]) => at));
    if (steps.length === 0) return;
    const ticks = logTicks(steps);
    const factor = 10 ** (1 / data.stepsPerDecade);
    const x = {
      scale: logarithmic(ticks[0] / factor, ticks.at(-1), LEFT, NARROW - RIGHT),
      label: 'latency',
      ticks: ticks.map((at) => ({ at, text: ms(at) })),
    };
    const sums = new Map();
    for (const name of names)
      for (const [at, count] of data.distribution[name]) sums.set(at, (sums.get(at) ?? 0) + count);
    const y = valueAxis(Math.max(...sums.values()));
    const below = new Map();
    const bars = names.flatMap((name) =>
      data.distribution[name].map(([at, count]) => {
        const from = below.get(at) ?? 0;
        below.set(at, from + count);
        const [left, right] = [x.scale(at / factor), x.scale(at)];
        const [bottom, top] = [y.scale(from), y.scale(from + count)];
        const bar = svg('rect', {
          class: `area ${statusStyle(name)}`,
          x: left,
          y: top,
          width: Math.max(0.5, right - left - 1),
          height: bottom - top,
        });
        bar.append(svg('title', {}, `${name}, up to ${ms(at)}: ${count}`));
        return bar;
      }),
    );
    chart('Requests by latency and status', [...axes({ x, y }), ...bars], {
      names,
      styles: names.map(statusStyle),
    });
  }

  function percentileChart() {
    const points = data.latencyMs.points.filter(([percentile, value]) => percentile < 100 && value > 0);
    if (points.length === 0) return;
    const ticks = logTicks(points.map(([, value]) => value));
    const tail = (percentile) => 100 / (100 - percentile);
    const shown = [0, ...(isSmall ? [] : [50]), 90, 99, 99.9, 99.99, 99.999];
    const x = {
      scale: logarithmic(1, 1e5, LEFT, NARROW - RIGHT),
      label: 'percentile',
      ticks: shown.map((percentile) => ({ at: tail(percentile), text: `${percentile} %` })),
    };
    const y = {
      scale: logarithmic(ticks[0], ticks.at(-1), HEIGHT - BOTTOM, TOP),
      ticks: ticks.map((at) => ({ at, text: ms(at) })),
    };
    const curve = line(
      points.map(([percentile, value]) => [x.scale(tail(percentile)), y.scale(value)]),
      's1',
    );
    chart('Latency by percentile', [...axes({ x, y }), curve]);
  }

  // ---- The server's own figures ----

  const SERVER_CHARTS = [
    ['The server: requests a second by outcome', (name) => name.endsWith('/s')],
    ['The server: mean times', (name) => name.startsWith('mean ')],
    ['The server: under way', (name) => name === 'requests under way'],
    ['The server: memory and disk of bodies', (name) => name.endsWith('MiB')],
    ['The server: workers, and how many were started anew', (name) => name.startsWith('worker')],
  ];
  function serverCharts() {
    const looks = data.server?.looks ?? [];
    const all = [...new Set(looks.flatMap(({ values }) => Object.keys(values)))];
    for (const [title, matches] of SERVER_CHARTS) {
      const names = all.filter((name) => matches(name) && looks.some(({ values }) => values[name] > 0));
      if (names.length === 0) continue;
      const y = valueAxis(Math.max(...looks.flatMap(({ values }) => names.map((name) => values[name] ?? 0))));
      const time = timeAxis(NARROW);
      const styles = names.map((_, at) => `s${at % SERIES}`);
      const lines = names.map((name, at) => {
        const known = looks.filter(({ values }) => name in values || name.endsWith('/s'));
        const points = known.map(({ second, values }) => [
          time.scale(Math.min(second, lastSecond)),
          y.scale(values[name] ?? 0),
        ]);
        return line(points, styles[at]);
      });
      chart(title, [...bands(time), ...axes({ x: time, y }), ...lines], { names, styles });
    }
  }

  // ---- Tables ----

  function table(title, heads, rows, { wide = false, textColumns = 1 } = {}) {
    if (rows.length === 0) return;
    const style = (at) => (at >= textColumns ? 'figure' : 'text');
    const head = el('tr', {}, ...heads.map((name, at) => el('th', { scope: 'col', class: style(at) }, name)));
    const lines = rows.map((cells) =>
      el('tr', {}, ...cells.map((cell, at) => el('td', { class: style(at) }, cell))),
    );
    const body = el('table', {}, el('thead', {}, head), el('tbody', {}, ...lines));
    $('tables').append(el('div', { class: wide ? 'panel wide' : 'panel' }, el('h2', {}, title), body));
  }
  const LATENCY_HEADS = ['requests', 'p50 ms', 'p90 ms', 'p95 ms', 'p99 ms', 'p99.9 ms', 'max ms'];
  const latencyCells = (of) => [
    `${of.count}`,
    ...[of.p50, of.p90, of.p95, of.p99, of.p999, of.max].map(number),
  ];
  const latencyRows = (by) => Object.entries(by).map(([name, of]) => [name, ...latencyCells(of)]);

  function tables() {
    const sign = (missed) => el('span', { class: missed ? 'bad' : 'good' }, missed ? `✗ ${missed}` : '✓');
    table(
      'Checks',
      ['check', 'found', ''],
      data.checks.map(({ name, figure, missed }) => [name, figure, sign(missed)]),
      {
        textColumns: 3,
        wide: true,
      },
    );
    if (data.stages.length > 1)
      table(
        'By stage: answers that came in it, and what became of the requests that were intended in it',
        ['stage', 'from s', 'to s', 'answered/s', 'late', 'failed', 'p50 ms', 'p99 ms', 'max ms', 'statuses'],
        data.stages.map(({ name, fromMs, toMs, ratePerSec, late, failed, latencyMs: l, statuses }) => [
          name,
          ...[fromMs / 1000, toMs / 1000].map(short),
          number(ratePerSec),
          `${late}`,
          `${failed}`,
          ...[l.p50, l.p99, l.max].map(number),
          pairs(statuses),
        ]),
        { wide: true },
      );
    table('Latency by status', ['status', ...LATENCY_HEADS], latencyRows(data.byStatus));
    table('Latency by kind, successes and time-outs', ['kind', ...LATENCY_HEADS], latencyRows(data.byKind));
    table(
      'Failures',
      ['reason', 'requests'],
      Object.entries(data.failures).map(([name, count]) => [name, `${count}`]),
    );
    const { verification: v } = data;
    if (v)
      table(
        'Told and stored',
        ['envelopes', 'count'],
        [
          ['told 200, counted', `${v.accepted}`],
          ['told 200, nothing of it is stored', `${v.empty}`],
          ['refused', `${v.refused}`],
          ['unknown (500, or no answer)', `${v.unknown}, of which ${v.unknownStored} are stored`],
          ['stored', `${v.stored}`],
          ['lost', `${v.lost}`],
          ['ignored by this server', pairs(v.ignored ?? {})],
          ['double items', `${v.double}`],
          ['late', `${v.late}`],
          ["the sink's tally", v.tallied === undefined ? 'it keeps none' : `+${v.tallied}`],
          ['usage', v.usage === undefined ? 'not asked' : `+${v.usage}`],
        ],
      );
    if (data.knee)
      table(
        'The search for the knee',
        ['rate', 'p99 ms', ''],
        data.knee.steps.map(({ rate, p99Ms, why }) => [
          `${number(rate)}/s`,
          number(p99Ms),
          sign(why.join('; ')),
        ]),
      );
    if (data.server)
      table(
        "The server's own count",
        ['outcome', 'requests'],
        Object.entries(data.server.outcomes).map(([name, count]) => [name, `${count}`]),
      );
    const { machine, generator: g } = data;
    table(
      'The generator',
      ['', ''],
      [
        ['machine', `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB`],
        ['system', `${machine.kernel}, Node.js ${machine.node}`],
        ['CPU per request', `${number(g.cpuUsPerRequest)} µs`],
        ['share of a core', `${number(g.busy * 100)} %`],
        ['late by', `p50 ${number(g.lateP50Ms)} ms, p99 ${number(g.lateP99Ms)} ms`],
        ['connections', `${data.connections}`],
        ['workload', data.workload],
        ['runs', data.runs.join(', ')],
        ...Object.entries(data.settings).map(([name, value]) => [`--${name}`, value]),
      ],
      { textColumns: 2 },
    );
  }

  // ---- The page ----

  function head() {
    const bad = data.missed.length;
    $('verdict').textContent =
      bad === 0 ? 'everything holds' : `${bad} of ${data.checks.length} checks do not hold`;
    $('verdict').className = bad === 0 ? 'good' : 'bad';
    const loop = data.loop === 'open' ? `open loop, up to ${short(data.targetRate)}/s` : 'closed loop';
    $('when').textContent =
      `${data.startedAt.replace('T', ' ').slice(0, 19)} UTC, ${number(data.seconds)} s, ${loop}`;
    const card = (title, value, note = '') =>
      el('div', { class: 'card' }, el('span', {}, title), el('b', {}, value), el('small', {}, note));
    const { latencyMs: l, waitMs: wait, serviceMs: service, verification: v } = data;
    $('cards').append(
      card(
        'answered as expected',
        `${number(data.ratePerSec)}/s`,
        `${data.answered} in time, ${data.late} after the end`,
      ),
      card('p50', `${number(l.p50)} ms`, 'from the intended moment'),
      card('p99', `${number(l.p99)} ms`, 'refusals left out'),
      card('p99.9', `${number(l.p999)} ms`, `max ${number(l.max)} ms`),
      card(
        'waiting, then service',
        `${number(wait.p50)} + ${number(service.p50)} ms`,
        `p99 ${number(wait.p99)} for a connection, ${number(service.p99)} ms to the answer`,
      ),
      card('failed', `${data.failed}`, pairs(data.failures)),
      data.saysNothingOfStores
        ? card('told 200, not stored', '–', 'this server does not say')
        : card('told 200, not stored', `${sum(data.unstored)}`, pairs(data.unstored)),
    );
    if (v)
      $('cards').append(card('lost', `${v.lost}`, `double ${v.double}, late ${v.late} of ${v.accepted}`));
    if (data.knee)
      $('cards').append(
        card(
          'last good rate',
          data.knee.lastGoodRate === undefined ? 'none' : `${number(data.knee.lastGoodRate)}/s`,
        ),
      );
    const cautions = [
      ...data.cautions.map((why) => `${why}.`),
      ...(data.stopped ? [`The run ended early: ${data.stopped.reason}.`] : []),
      ...(data.server?.problem ? [`The server's metrics are not complete: ${data.server.problem}.`] : []),
      ...(v?.notes ?? []),
    ];
    $('cautions').append(...cautions.map((text) => el('p', {}, text)));
  }

  head();
  rateChart();
  latencyChart();
  histogramChart();
  percentileChart();
  serverCharts();
  tables();
})();
