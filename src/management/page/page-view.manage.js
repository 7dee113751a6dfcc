/**
 * The part of ingest's page that asks the management API: its requests, the list of projects and
 * the form that creates one. The page adds values as text nodes only, so a value cannot become
 * markup.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.js, joined after this file, calls it.
function management({ $, el, svg, panel, usageCell, whole, bytes, groups, authorization }) {
  const ROWS = 50;
  const COLUMNS = 8;

  const edit = editing({ el, panel, copy });
  const address = pageAddress();

  // ---- The API ----

  async function detailOf(answer) {
    const { detail = `The answer is ${answer.status}.`, errors = [] } = await answer.json().catch(() => ({}));
    const fields = errors.map((error) => `${error.field}: ${error.detail}`);
    return [detail, ...fields.filter((text) => !detail.includes(text))].join(' ');
  }

  /** Whether the last answer said that the token is a viewer's. */
  let isViewer = false;
  /** Requests that are not answered yet. */
  const underWay = new Set();

  /**
   * Sends a request to the management API, and gets its answer's JSON.
   * @returns the JSON and ETag, and the path of the next page when there is one
   */
  function ask(path, options) {
    const answer = jsonOf(path, options);
    underWay.add(answer);
    return answer.finally(() => underWay.delete(answer));
  }

  async function jsonOf(path, options) {
    const answer = await send(path, options);
    const [, next] = /^<(\/v1\/[^>]+)>; rel="next"$/.exec(answer.headers.get('Link') ?? '') ?? [];
    const json = answer.status === 204 ? undefined : await answer.json();
    return { json, next, etag: answer.headers.get('ETag') };
  }

  /** Sends a request to the management API. Throws an Error when the answer is no success. */
  async function send(path, { method = 'GET', body, etag, signal } = {}) {
    const isChange = method !== 'GET';
    const headers = {
      ...authorization(),
      ...(isChange && { 'Content-Type': 'application/json' }),
      ...(etag && { 'If-Match': etag }),
    };
    const sent = body && { body: JSON.stringify(body) };
    const answer = await fetch(path, { method, ...sent, cache: 'no-store', headers, signal });
    isViewer = answer.headers.get('X-Sluice-Role') === 'viewer';
    $('guessed').hidden = answer.headers.get('X-Sluice-Public-Url') !== 'guessed';
    $('create').closest('section').hidden = isViewer;
    // When the reader gave another token meanwhile, the refused token is not the present one.
    const isRefused = answer.status === 401 && headers.Authorization === authorization().Authorization;
    if (isRefused) $('login').hidden = false;
    if (!answer.ok) throw new Error(await detailOf(answer));
    return answer;
  }

  /** Resolves when no request is under way and all answers are drawn. */
  async function settled() {
    while (underWay.size > 0) {
      await Promise.allSettled(underWay);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  /**
   * Makes a list in a section. `start` reads a path of the API until `rows` entries or more are
   * there, and only then draws the list anew, so that a refresh leaves the page where it is. Each
   * click on "More" reads ROWS more. `add` draws the entries of a page.
   */
  function pagedList(section, { clear, add, drawn = () => undefined }) {
    const [more, note] = [section.querySelector('.more'), section.querySelector('.empty')];
    note.tabIndex = -1;
    let turn = 0;
    let shown = 0;

    async function read(path, rows, isNew) {
      const mine = ++turn;
      const hadFocus = document.activeElement === more;
      more.hidden = true;
      if (hadFocus) note.focus();
      try {
        const pages = [];
        let next = path;
        for (let left = rows; next && left > 0; left -= pages.at(-1).length) {
          const page = await ask(next);
          if (mine !== turn) return;
          pages.push(page.json);
          next = page.next;
        }
        if (isNew) clear();
        for (const page of pages) add(page);
        shown = pages.reduce((sum, page) => sum + page.length, isNew ? 0 : shown);
        more.hidden = !next;
        more.onclick = () => read(next, ROWS, false);
        if (hadFocus && next && document.activeElement === note) more.focus();
        note.className = 'empty';
        note.textContent = shown === 0 ? 'nothing yet' : `${whole(shown)} shown${next ? ' so far' : ''}`;
        drawn(shown);
      } catch (error) {
        if (mine === turn) tell(note, error);
      }
    }

    return { start: (path, rows = Math.max(ROWS, shown)) => read(path, rows, true), shown: () => shown };
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

  function keyCell(key) {
    const button = el('button', { type: 'button' }, 'Show');
    button.addEventListener('click', () => {
      const text = el('code', { tabindex: '-1' }, key);
      button.replaceWith(text);
      text.focus();
    });
    return button;
  }

  // ---- All projects ----

  /** Reads the list again after a project was deleted. */
  function onDeleted(id) {
    close(id);
    listProjects();
    $('filter').focus();
  }

  const texts = { row, keyCell, moment, limit, textOf };
  const requests = { ask, pagedList, tell, isViewer: () => isViewer };
  const drawing = { el, svg, panel, usageCell, whole, groups, edit, columns: COLUMNS };
  const openProject = projectDetails({ ...texts, ...requests, ...drawing, onDeleted });
  /** Details of the open projects, by id. The address names them, too. */
  const opened = new Map();

  function close(id) {
    opened.delete(id);
    const others = address.all('project').filter((other) => other !== id);
    address.set('project', others, { isStep: true });
  }

  /** Makes the rows of a project: one line, and the details when the address names the project. */
  function projectRows(project) {
    const { id, alias = '–', name = '–', plan, keys, rateLimit, quota, usage, enabled } = project;
    const button = el('button', { type: 'button', class: 'link' }, id);
    const state = enabled ? 'enabled' : 'disabled';
    const perMinute = rateLimit === undefined ? 'by plan' : whole(rateLimit);
    const used = usageCell({ quota, usage: usage === undefined ? usage : { position: usage } });
    const line = row([button, name, alias, plan, whole(keys.length), perMinute, used, state]);
    const show = () => {
      const details = opened.get(id) ?? openProject(id);
      opened.set(id, details);
      button.setAttribute('aria-expanded', 'true');
      details.read();
      return details.line;
    };
    button.setAttribute('aria-expanded', 'false');
    line.addEventListener('click', () => {
      const details = opened.get(id);
      if (!details) {
        line.after(show());
        return address.set('project', [...address.all('project'), id], { isStep: true });
      }
      details.line.remove();
      close(id);
      button.setAttribute('aria-expanded', 'false');
    });
    return address.all('project').includes(id) ? [line, show()] : [line];
  }

  const listed = $('listed-projects').querySelector('tbody');
  const projectList = pagedList($('listed-projects'), {
    clear: () => listed.replaceChildren(),
    add: (projects) => listed.append(...projects.flatMap(projectRows)),
    drawn: (rows) => address.keep({ rows }),
  });
  /** Buttons in the head of the list, each of which sorts by its column. */
  const sorts = $('listed-projects').querySelectorAll('[data-sort]');
  for (const one of sorts)
    one.addEventListener('click', () => {
      const { sort } = one.dataset;
      address.set('sort', sort === 'id' ? [] : [sort], { isStep: true });
      listProjects(ROWS);
    });

  /** Lists projects as the address says. */
  async function listProjects(rows) {
    const search = address.get('search').slice(0, 100);
    const open = address.all('project');
    for (const id of opened.keys()) if (!open.includes(id)) opened.delete(id);
    const sort = address.get('sort') || 'id';
    for (const one of sorts) {
      const direction = sort === 'usage' ? 'descending' : 'ascending';
      one.closest('th').setAttribute('aria-sort', one.dataset.sort === sort ? direction : 'none');
    }
    const query = `${search && `&search=${encodeURIComponent(search)}`}${sort === 'id' ? '' : `&sort=${sort}`}`;
    await projectList.start(`/v1/projects?limit=${ROWS}${query}&usage=true`, rows);
    if (search === '') await Promise.all(open.map(showAbove));
  }

  /** Shows an open project above the list, when the list does not reach to it. */
  async function showAbove(id) {
    if (opened.get(id)?.line.isConnected) return;
    const found = await ask(`/v1/projects/${encodeURIComponent(id)}`).catch(() => undefined);
    if (found && !opened.get(id)?.line.isConnected) listed.prepend(...projectRows(found.json));
  }

  let typing;
  $('filter').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const isStep = address.get('search') === '';
      address.set('search', [$('filter').value.trim()], { isStep });
      listProjects(ROWS);
    }, 200);
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

  // ---- All lists ----

  const { button } = edit;
  const listHeartbeats = heartbeatTokens({ $, el, button, ...texts, ...requests });
  const followRefusals = refusalTail({ $, el, whole, bytes, address, send, ...texts, ...requests });
  const listLetters = deadLetters({ $, el, panel, whole, bytes, button, address, ...texts, ...requests });

  async function refresh(rows) {
    if ($('management').hidden) return;
    await Promise.all([listProjects(rows), listHeartbeats(), listLetters()]);
    await settled();
  }
  $('refresh').addEventListener('click', () => refresh());
  /** Draws the lists as the address says. */
  const draw = () =>
    address.move(() => {
      $('filter').value = address.get('search');
      followRefusals();
      return refresh(address.rows());
    });
  addEventListener('popstate', draw);

  /** Shows this part of the page at the first call. */
  function open() {
    if (!$('management').hidden) return;
    $('management').hidden = false;
    draw();
  }
  return { open, refresh };
}
