/** The details of an open project on ingest's page: keys, usage, settings and more. */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function projectDetails(parts) {
  const { el, svg, panel, usageCell, whole, groups, ask, pagedList, tell } = parts;
  const { row, keyCell, moment, limit, textOf, edit, isViewer, onDeleted, columns } = parts;
  /** Hours of usage that the page reads; sluice keeps no more. */
  const USAGE_HOURS = 32 * 24;

  function stateOf({ enabled, expires }) {
    if (!enabled) return 'disabled';
    return expires !== undefined && Date.parse(expires) <= Date.now() ? 'expired' : 'enabled';
  }

  const keysPanel = (keys, change) =>
    panel(
      'Keys',
      [
        'key',
        'label',
        'state',
        'expires',
        'last used',
        'limit / min',
        'text',
        ...(isViewer() ? [] : ['change']),
      ],
      keys.map((key) => [
        key.id,
        key.label ?? '–',
        stateOf(key),
        moment(key.expires),
        moment(key.lastUsed),
        limit(key.rateLimit),
        keyCell(key.key),
        ...(isViewer() ? [] : [el('span', {}, ...edit.keyButtons(key, change))]),
      ]),
    );

  function limitsPanel({ id: _id, key: _key, dsn: _dsn, keys: _keys, ...fields }) {
    const shown = { rateLimit: 'by plan', quota: undefined, ...fields };
    return panel(
      'Settings',
      ['field', 'value'],
      Object.entries(shown).map(([name, value]) => [name, textOf(value)]),
    );
  }

  /** Sums hours to days: returns [day, counts by outcome], the newest day first. */
  function byDay(hours) {
    const days = new Map();
    for (const { hour, outcomes } of hours) {
      const day = hour.slice(0, 10);
      const sums = days.get(day) ?? {};
      for (const [name, count] of Object.entries(outcomes)) sums[name] = (sums[name] ?? 0) + count;
      days.set(day, sums);
    }
    return [...days].sort(([one], [other]) => (one < other ? 1 : -1));
  }

  const sumOf = (outcomes) => Object.values(outcomes).reduce((sum, count) => sum + count, 0);

  function bar(outcomes, top) {
    let x = 0;
    const parts = groups.map(([, colour, members]) => {
      const width = (100 * members.reduce((sum, name) => sum + (outcomes[name] ?? 0), 0)) / top;
      const part = svg('rect', { x, y: 0, width, height: 10, class: `fill-${colour}` });
      x += width;
      return part;
    });
    return svg(
      'svg',
      { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      ...parts,
    );
  }

  /** Says when a request was last accepted. Requests are counted by hour. */
  function lastAccepted(hours) {
    const last = hours.findLast(({ outcomes }) => outcomes.accepted > 0);
    return last
      ? `last accepted request: in the hour from ${moment(last.hour)} UTC`
      : `no accepted request in ${USAGE_HOURS / 24} days`;
  }

  function usagePanel({ month, current, quota, hours }) {
    const days = byDay(hours);
    const top = Math.max(1, ...days.map(([, outcomes]) => sumOf(outcomes)));
    const lines = days.map(([day, outcomes]) => [
      day,
      bar(outcomes, top),
      whole(sumOf(outcomes)),
      textOf(outcomes),
    ]);
    const made = panel('Usage', ['day (UTC)', 'shares', 'requests', 'outcomes'], lines);
    const line = el(
      'p',
      { class: 'month' },
      `${month}: `,
      usageCell({ usage: { position: current }, quota }),
    );
    made.querySelector('h2').after(line, el('p', { class: 'last' }, lastAccepted(hours)));
    return made;
  }

  function changesOf({ from = {}, to = {} }) {
    const names = [...new Set([...Object.keys(from), ...Object.keys(to)])];
    return names
      .filter((name) => JSON.stringify(from[name]) !== JSON.stringify(to[name]))
      .map((name) => `${name}: ${textOf(from[name])} → ${textOf(to[name])}`)
      .join('; ');
  }

  function historyPanel(base) {
    const body = el('tbody');
    const heads = ['at (UTC)', 'by', 'action', 'what'].map((text) => el('th', { scope: 'col' }, text));
    const section = el('section', { class: 'panel' }, el('h2', {}, 'History'));
    const more = el('button', { type: 'button', class: 'more' }, 'More');
    const table = el('table', { 'aria-label': 'History' }, el('thead', {}, el('tr', {}, ...heads)), body);
    section.append(table, el('p', { class: 'empty' }), more);
    const list = pagedList(section, {
      clear: () => body.replaceChildren(),
      add: (changes) =>
        body.append(
          ...changes.map((change) => {
            const what = change.action === 'change' ? changesOf(change) : '';
            return row([moment(change.at), change.by, change.action, what]);
          }),
        ),
    });
    return { section, read: () => list.start(`${base}/history?limit=50`) };
  }

  /** Whether the reader has changed a field of a form. */
  const isTouched = (form) =>
    [...form.querySelectorAll('input, option')].some((field) =>
      field.tagName === 'OPTION'
        ? field.selected !== field.defaultSelected
        : field.checked !== field.defaultChecked || field.value !== field.defaultValue,
    );

  /**
   * Reads an open project and draws it. While the record is the same, forms that the reader has
   * begun to fill in stay. A DSN that is shown and the outcome of a test stay, too.
   */
  async function fill(shown) {
    const { id, cell, alert } = shown;
    const base = `/v1/projects/${encodeURIComponent(id)}`;
    const paths = [base, `${base}/keys`, `${base}/usage?hours=${USAGE_HOURS}`];
    const [{ json: project, etag }, { json: keys }, { json: usage }] = await Promise.all(
      paths.map((path) => ask(path)),
    );
    const change = async (method, path, body) => {
      alert.hidden = true;
      const { place } = document.activeElement.dataset;
      try {
        await ask(`${base}${path}`, { method, body, etag });
        if (method === 'DELETE' && path === '') return onDeleted(id);
        shown.forms = [];
        await fill(shown);
        focusAgain(cell, place);
      } catch (error) {
        tell(alert, error);
      }
    };
    if (project.dsn !== shown.dsn || !shown.dsnPanel) shown.dsnPanel = edit.dsnPanel(project);
    if (etag !== shown.etag || !shown.forms.some(isTouched)) shown.forms = edit.forms(project, change);
    Object.assign(shown, { etag, dsn: project.dsn });
    shown.history ??= historyPanel(base);
    shown.test ??= edit.testPanel(base, { ask, tell });
    cell.replaceChildren(
      alert,
      shown.dsnPanel,
      ...(isViewer() ? [] : [shown.test]),
      keysPanel(keys, change),
      edit.reasonsPanel(usage, whole),
      usagePanel(usage),
      limitsPanel(project),
      ...(isViewer() ? [] : shown.forms),
      shown.history.section,
    );
    for (const one of cell.querySelectorAll('.panel:has(table)')) scrollable(one);
    shown.history.read();
  }

  /** Lets the keyboard scroll a panel whose table may be wider than the window. */
  function scrollable(one) {
    const named = { role: 'region', tabindex: '0', 'aria-label': one.querySelector('h2').textContent };
    for (const [name, value] of Object.entries(named)) one.setAttribute(name, value);
  }

  /**
   * After the project was drawn anew, gives the focus back to its field or button; if that is gone,
   * to the project's button. Does nothing if the focus is elsewhere by then.
   */
  function focusAgain(cell, place) {
    if (place === undefined || document.activeElement !== document.body) return;
    const found = [...cell.querySelectorAll('[data-place]')].find(({ dataset }) => dataset.place === place);
    (found ?? cell.parentElement.previousElementSibling.querySelector('button')).focus();
  }

  /** Makes the row of an open project. `read` reads the project and draws it. */
  return (id) => {
    const alert = el('p', { role: 'alert', hidden: '' });
    const cell = el('td', { colspan: `${columns}` }, alert, el('p', { class: 'empty' }, 'asking'));
    const shown = { id, cell, alert, forms: [] };
    const read = () =>
      fill(shown).catch((error) => {
        if (shown.etag === undefined) cell.replaceChildren(alert);
        tell(alert, error);
      });
    return { line: el('tr', { class: 'details' }, cell), read };
  };
}
