/**
 * The part of ingest's page that asks the management API: projects with their keys, usage and
 * history, dead letters, and the form that creates a project. The page adds values as text nodes
 * only, so a value cannot become markup.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.js, joined behind this file, calls it.
function management({ $, el, svg, panel, usageCell, whole, bytes, groups, authorization }) {
  const ROWS = 50;
  /** Entries of one answer when the page reads many dead letters. */
  const READ = 1000;
  /** Hours of usage that the page reads; sluice keeps no more. */
  const USAGE_HOURS = 32 * 24;
  const COLUMNS = 8;

  const edit = editing({ el, panel, copy });

  // ---- The API ----

  async function detailOf(answer) {
    const { detail = `The answer is ${answer.status}.`, errors = [] } = await answer.json().catch(() => ({}));
    const fields = errors.map((error) => `${error.field}: ${error.detail}`);
    return [detail, ...fields.filter((text) => !detail.includes(text))].join(' ');
  }

  /** Whether the last answer said that the token is a viewer's. */
  let isViewer = false;

  /**
   * Sends a request to the management API.
   * @returns the answer's JSON and ETag, and the path of the next page when there is one
   */
  async function ask(path, { method = 'GET', body, etag } = {}) {
    const isChange = method !== 'GET';
    const headers = {
      ...authorization(),
      ...(isChange && { 'Content-Type': 'application/json' }),
      ...(etag && { 'If-Match': etag }),
    };
    const sent = body && { body: JSON.stringify(body) };
    const answer = await fetch(path, { method, ...sent, cache: 'no-store', headers });
    isViewer = answer.headers.get('X-Sluice-Role') === 'viewer';
    $('create').closest('section').hidden = isViewer;
    // When the reader gave another token meanwhile, the refused token is not the present one.
    const isRefused = answer.status === 401 && headers.Authorization === authorization().Authorization;
    if (isRefused) $('login').hidden = false;
    if (!answer.ok) throw new Error(await detailOf(answer));
    const [, next] = /^<(\/v1\/[^>]+)>; rel="next"$/.exec(answer.headers.get('Link') ?? '') ?? [];
    const json = answer.status === 204 ? undefined : await answer.json();
    return { json, next, etag: answer.headers.get('ETag') };
  }

  /**
   * Makes a list in a section. The returned function starts the list at a path: it reads pages of
   * the API until ROWS rows are shown, and reads more at each click on "More". `add` shows the
   * entries of a page and returns the number of its rows. A new start ends an earlier one.
   */
  function pagedList(section, { clear, add }) {
    const [more, note] = [section.querySelector('.more'), section.querySelector('.empty')];
    note.tabIndex = -1;
    let turn = 0;
    let shown = 0;

    async function read(path) {
      const mine = ++turn;
      const enough = shown + ROWS;
      const hadFocus = document.activeElement === more;
      more.hidden = true;
      if (hadFocus) note.focus();
      try {
        for (let next = path; next; ) {
          const page = await ask(next);
          if (mine !== turn) return;
          shown += add(page.json);
          next = page.next;
          if (next && shown < enough) continue;
          more.hidden = !next;
          more.onclick = () => read(next);
          if (hadFocus && next && document.activeElement === note) more.focus();
          break;
        }
        note.className = 'empty';
        note.textContent =
          shown === 0 ? 'nothing yet' : `${whole(shown)} shown${more.hidden ? '' : ' so far'}`;
      } catch (error) {
        if (mine === turn) tell(note, error);
      }
    }

    return (path) => {
      shown = 0;
      clear();
      return read(path);
    };
  }

  function tell(note, { message }) {
    note.className = 'trouble';
    note.textContent = message;
    note.hidden = false;
  }

  // ---- Text ----

  const moment = (iso) => (iso === undefined ? '–' : iso.slice(0, 16).replace('T', ' '));
  const limit = (value) => (value === undefined ? 'none' : whole(value));
  const row = (cells) => el('tr', {}, ...cells.map((cell) => el('td', {}, cell)));
  function textOf(value) {
    if (value === undefined) return 'none';
    if (typeof value === 'boolean') return value ? 'yes' : 'no';
    if (typeof value === 'number') return whole(value);
    if (Array.isArray(value)) return value.map(textOf).join(', ') || 'none';
    if (typeof value !== 'object' || value === null) return `${value}`;
    return Object.entries(value)
      .map(([name, inner]) => `${name} ${textOf(inner)}`)
      .join(', ');
  }

  // ---- One project ----

  function stateOf({ enabled, expires }) {
    if (!enabled) return 'disabled';
    return expires !== undefined && Date.parse(expires) <= Date.now() ? 'expired' : 'enabled';
  }

  function keyCell(key) {
    const button = el('button', { type: 'button' }, 'Show');
    button.addEventListener('click', () => {
      const text = el('code', { tabindex: '-1' }, key);
      button.replaceWith(text);
      text.focus();
    });
    return button;
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
        ...(isViewer ? [] : ['change']),
      ],
      keys.map((key) => [
        key.id,
        key.label ?? '–',
        stateOf(key),
        moment(key.expires),
        moment(key.lastUsed),
        limit(key.rateLimit),
        keyCell(key.key),
        ...(isViewer ? [] : [el('span', {}, ...edit.keyButtons(key, change))]),
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
    made.querySelector('h2').after(line);
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
    const start = pagedList(section, {
      clear: () => body.replaceChildren(),
      add: (changes) => {
        const lines = changes.map((change) => {
          const what = change.action === 'change' ? changesOf(change) : '';
          return row([moment(change.at), change.by, change.action, what]);
        });
        body.append(...lines);
        return lines.length;
      },
    });
    start(`${base}/history?limit=${ROWS}`);
    return section;
  }

  async function fillDetails(cell, id) {
    const base = `/v1/projects/${encodeURIComponent(id)}`;
    const paths = [base, `${base}/keys`, `${base}/usage?hours=${USAGE_HOURS}`];
    const [{ json: project, etag }, { json: keys }, { json: usage }] = await Promise.all(
      paths.map((path) => ask(path)),
    );
    const note = el('p', { role: 'alert', hidden: '' });
    const change = async (method, path, body) => {
      note.hidden = true;
      const { place } = document.activeElement.dataset;
      try {
        await ask(`${base}${path}`, { method, body, etag });
        if (method === 'DELETE' && path === '') return closed(id);
        await fillDetails(cell, id);
        focusAgain(cell, place);
      } catch (error) {
        tell(note, error);
      }
    };
    cell.replaceChildren(
      note,
      edit.dsnPanel(project),
      keysPanel(keys, change),
      edit.reasonsPanel(usage, whole),
      usagePanel(usage),
      limitsPanel(project),
      ...(isViewer ? [] : edit.forms(project, change)),
      historyPanel(base),
    );
    for (const one of cell.querySelectorAll('.panel:has(table)')) scrollable(one);
  }

  /** Lets the keyboard scroll a panel whose table may be wider than the window. */
  function scrollable(one) {
    const named = { role: 'region', tabindex: '0', 'aria-label': one.querySelector('h2').textContent };
    for (const [name, value] of Object.entries(named)) one.setAttribute(name, value);
  }

  /**
   * Gives the focus back to a field or button after the project was drawn anew. When it is gone, its
   * project's button gets the focus. Nothing happens when the reader has gone elsewhere meanwhile.
   */
  function focusAgain(cell, place) {
    if (place === undefined || document.activeElement !== document.body) return;
    const found = [...cell.querySelectorAll('[data-place]')].find(({ dataset }) => dataset.place === place);
    (found ?? cell.parentElement.previousElementSibling.querySelector('button')).focus();
  }

  /** Reads the list again after a project was deleted. */
  function closed(id) {
    opened.delete(id);
    listProjects();
    $('filter').focus();
  }

  function detailsOf(id) {
    const note = el('p', { class: 'empty' }, 'asking');
    const cell = el('td', { colspan: `${COLUMNS}` }, note);
    fillDetails(cell, id).catch((error) => tell(note, error));
    return el('tr', { class: 'details' }, cell);
  }

  // ---- All projects ----

  /**
   * Projects whose details are open. A refresh leaves them open. The page's address names the
   * project that was opened last.
   */
  const opened = new Set(
    /^#project\/[\w-]+$/.test(location.hash) ? [location.hash.slice('#project/'.length)] : [],
  );
  // When the address names a project, the list shows only this project, because among thousands it
  // may not be on the first page of the list.
  for (const id of opened) $('filter').value = id;

  function projectRow(project) {
    const { id, alias = '–', name = '–', plan, keys, rateLimit, quota, enabled } = project;
    const button = el('button', { type: 'button', class: 'link', 'aria-expanded': 'false' }, id);
    const state = enabled ? 'enabled' : 'disabled';
    const perMinute = rateLimit === undefined ? 'by plan' : whole(rateLimit);
    const line = row([button, name, alias, plan, whole(keys.length), perMinute, limit(quota), state]);
    let details;
    const toggle = () => {
      details?.remove();
      details = details ? undefined : detailsOf(id);
      if (details) line.after(details);
      button.setAttribute('aria-expanded', `${details !== undefined}`);
      if (details) opened.add(id);
      else opened.delete(id);
    };
    line.addEventListener('click', () => {
      toggle();
      history.replaceState(null, '', details ? `#project/${id}` : location.pathname);
    });
    if (opened.has(id)) queueMicrotask(toggle);
    return line;
  }

  const wanted = () => $('filter').value.trim().slice(0, 100);
  const projectRows = $('listed-projects').querySelector('tbody');
  const startProjects = pagedList($('listed-projects'), {
    clear: () => projectRows.replaceChildren(),
    add: (projects) => {
      const lines = projects.map(projectRow);
      projectRows.append(...lines);
      return lines.length;
    },
  });
  function listProjects() {
    const search = wanted() === '' ? '' : `&search=${encodeURIComponent(wanted())}`;
    return startProjects(`/v1/projects?limit=${ROWS}${search}`);
  }
  let typing;
  $('filter').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(listProjects, 200);
  });

  // ---- A new project ----

  async function copy(field, button) {
    field.select();
    try {
      // navigator.clipboard exists only on a page of https or localhost.
      if (navigator.clipboard) await navigator.clipboard.writeText(field.value);
      else if (!document.execCommand('copy')) throw new Error('refused');
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Selected';
    }
  }

  function showCreated({ id, dsn }) {
    const field = el('input', { class: 'dsn', readonly: '', value: dsn, 'aria-label': 'DSN' });
    const button = el('button', { type: 'button' }, 'Copy');
    button.addEventListener('click', () => copy(field, button));
    $('created').replaceChildren('Project ', el('b', {}, id), field, button);
  }

  $('create').addEventListener('submit', async (event) => {
    event.preventDefault();
    const { plan, quota, rateLimit, overage } = $('create').elements;
    const numbers = [quota, rateLimit].filter(({ value }) => value !== '');
    const limits = Object.fromEntries(numbers.map(({ name, value }) => [name, Number(value)]));
    const submit = $('create').querySelector('button');
    submit.disabled = true;
    $('refused').hidden = true;
    $('created').replaceChildren();
    try {
      showCreated(
        (
          await ask('/v1/projects', {
            method: 'POST',
            body: { plan: plan.value, overage: overage.checked, ...limits },
          })
        ).json,
      );
      listProjects();
    } catch (error) {
      tell($('refused'), error);
    }
    submit.disabled = false;
  });

  // ---- Dead letters ----

  const letterRows = $('dead-letters').querySelector('tbody');
  let reasons = new Map();
  function showReasons() {
    const lines = [...reasons].sort(([, one], [, other]) => other.count - one.count);
    const cells = lines.map(([reason, { count, newest }]) => [reason, whole(count), moment(newest)]);
    const shown = panel('By reason', ['reason', 'count', 'newest (UTC)'], cells);
    $('reasons').replaceChildren(...shown.querySelectorAll('table'));
    $('dead-letters').querySelector('details').hidden = cells.length === 0;
  }
  /** Makes the buttons of a dead letter. The outcome of a click replaces them. */
  function letterButtons(id) {
    const path = `/v1/dead-letters/${id}`;
    const place = el('span', { role: 'status', tabindex: '-1' });
    const act = async (method, target) => {
      place.replaceChildren('under way');
      place.focus();
      try {
        const { became = 'purged', reason } = (await ask(target, { method })).json ?? {};
        place.textContent = reason === undefined ? became : `${became}: ${reason}`;
      } catch (error) {
        tell(place, error);
      }
    };
    place.append(
      edit.button('Replay', () => act('POST', `${path}/replay?wait=10`)),
      edit.button('Purge', () => confirm(`Remove dead letter ${id} for good?`) && act('DELETE', path)),
    );
    return place;
  }
  const startLetters = pagedList($('dead-letters'), {
    clear: () => {
      reasons = new Map();
      letterRows.replaceChildren();
      showReasons();
    },
    add: (letters) => {
      for (const { id, reason, filedAt, projectId = '–', type = '–', bytes: size } of letters) {
        // The letters come in the order of their filing, so the last one is the newest.
        reasons.set(reason, { count: (reasons.get(reason)?.count ?? 0) + 1, newest: filedAt });
        const buttons = isViewer ? '' : letterButtons(id);
        letterRows.append(row([id, projectId, type, bytes(size), moment(filedAt), buttons, reason]));
      }
      showReasons();
      return letters.length;
    },
  });

  const { button } = edit;
  const parts = { $, el, row, keyCell, moment, ask, pagedList, tell, button, isViewer: () => isViewer };
  const listHeartbeats = heartbeatTokens(parts);

  // ---- All lists ----

  function refresh() {
    if ($('management').hidden) return;
    listProjects();
    listHeartbeats();
    startLetters(`/v1/dead-letters?limit=${READ}`);
  }
  $('refresh').addEventListener('click', refresh);

  /** Shows this part of the page when it is called first. */
  function open() {
    if (!$('management').hidden) return;
    $('management').hidden = false;
    refresh();
  }
  return { open, refresh };
}
