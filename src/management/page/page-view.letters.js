/**
 * Dead letters on ingest's page: counts by reason and project with buttons that replay and purge a
 * whole group, and each letter with its content and the same buttons.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function deadLetters({
  $,
  el,
  panel,
  whole,
  bytes,
  button,
  address,
  row,
  moment,
  ask,
  pagedList,
  tell,
  isViewer,
}) {
  /** Letters that one request reads. The counts on the page include only letters that were read. */
  const READ = 1000;
  /** Letters of a group that are replayed or purged at the same time. */
  const AT_ONCE = 8;
  /** Seconds that all replays of a group wait for the processor, together. */
  const GROUP_WAIT_SEC = 60;
  /** Characters of a letter that are shown. */
  const PREVIEW_CHARS_MAX = 4000;
  /** Shown in place of the project of a letter that has none. */
  const NO_PROJECT = '–';
  const section = $('dead-letters');
  const said = $('letters-said');
  const letterRows = section.querySelector('tbody');
  const all = section.querySelector('details');
  /** Groups of letters that have the same reason and project. */
  let groups = new Map();
  /** Name of the group whose letters alone are shown; undefined when all are. */
  let chosen;

  function showGroups() {
    const lines = [...groups].sort(([, one], [, other]) => other.count - one.count);
    const cells = lines.map(([name, group]) => {
      const { reason, projectId, count, newest } = group;
      const choose = button('Show', () => {
        chosen = chosen === name ? undefined : name;
        all.open = true;
        showChosen();
      });
      choose.setAttribute('aria-label', `Show the letters of project ${projectId}: ${reason}`);
      choose.dataset.group = name;
      const buttons = el('span', {}, choose, ...(isViewer() ? [] : groupButtons(group)));
      return [reason, projectId, whole(count), moment(newest), buttons];
    });
    const shown = panel('By reason', ['reason', 'project', 'count', 'newest (UTC)', 'letters'], cells);
    $('reasons').replaceChildren(...shown.querySelectorAll('table'));
    all.hidden = cells.length === 0;
    showChosen();
  }

  function showChosen() {
    if (!groups.has(chosen)) chosen = undefined;
    for (const one of $('reasons').querySelectorAll('[data-group]'))
      one.setAttribute('aria-pressed', `${one.dataset.group === chosen}`);
    for (const line of letterRows.children)
      line.hidden = chosen !== undefined && line.dataset.group !== chosen;
  }

  // ---- All letters of a group ----

  /** Reads all letters of a group, of which the list has perhaps read only the first. */
  async function lettersOf({ reason, projectId }) {
    const found = [];
    const ofProject = projectId === NO_PROJECT ? '' : `&project=${encodeURIComponent(projectId)}`;
    for (let path = `/v1/dead-letters?limit=${READ}${ofProject}`; path; ) {
      const { json, next } = await ask(path);
      found.push(
        ...json.filter((one) => one.reason === reason && (one.projectId ?? NO_PROJECT) === projectId),
      );
      path = next;
    }
    return found;
  }

  /** Does `act` with each letter, AT_ONCE at a time. Returns the outcomes in the letters' order. */
  async function forEach(letters, act) {
    const done = el('progress', { max: `${letters.length}`, value: '0', 'aria-label': 'done' });
    $('outcomes').replaceChildren(done);
    const became = [];
    const queue = letters.entries();
    const next = async () => {
      for (const [at, letter] of queue) {
        became[at] = await act(letter).catch(({ message }) => ({ became: 'not done', reason: message }));
        done.value++;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
    return became;
  }

  let isUnderWay = false;
  /** Does `act` with all letters of a group, and says what became of each. */
  async function actOnGroup(group, act) {
    if (isUnderWay) return;
    isUnderWay = true;
    said.className = '';
    said.textContent = 'under way';
    said.focus();
    try {
      const letters = await lettersOf(group);
      const outcomes = await forEach(letters, act);
      const counts = new Map();
      for (const { became } of outcomes) counts.set(became, (counts.get(became) ?? 0) + 1);
      const sums = [...counts].map(([became, count]) => `${whole(count)} ${became}`);
      said.textContent = `Project ${group.projectId}, ${group.reason}: ${sums.join(', ') || 'none is there any more'}`;
      const cells = outcomes.map(({ became, reason = '–' }, at) => [letters[at].id, became, reason]);
      const shown = panel('What became of each', ['dead letter', 'became', 'reason'], cells);
      $('outcomes').replaceChildren(...shown.querySelectorAll('table'));
      await start();
    } catch (error) {
      tell(said, error);
    }
    isUnderWay = false;
  }

  /**
   * Makes the buttons of a group. Each request sends the letter's ETag, so that a letter that was
   * filed anew meanwhile is left alone.
   */
  function groupButtons(group) {
    const { projectId, reason } = group;
    const pathOf = ({ id }) => `/v1/dead-letters/${id}`;
    const tagOf = ({ sequence }) => `"${sequence}"`;
    const replayAll = () => {
      const end = performance.now() + GROUP_WAIT_SEC * 1000;
      return actOnGroup(group, async (letter) => {
        const wait = Math.max(0, Math.ceil((end - performance.now()) / 1000));
        const path = `${pathOf(letter)}/replay?wait=${wait}`;
        return (await ask(path, { method: 'POST', etag: tagOf(letter) })).json;
      });
    };
    const purgeAll = () =>
      confirm(`Remove all dead letters of project ${projectId} with this reason for good?\n${reason}`) &&
      actOnGroup(group, async (letter) => {
        await ask(pathOf(letter), { method: 'DELETE', etag: tagOf(letter) });
        return { became: 'purged' };
      });
    const made = [button('Replay all', replayAll), button('Purge all', purgeAll)];
    for (const one of made)
      one.setAttribute('aria-label', `${one.textContent} letters of project ${projectId}: ${reason}`);
    return made;
  }

  // ---- One letter ----

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
      button('Replay', () => act('POST', `${path}/replay?wait=10`)),
      button('Purge', () => confirm(`Remove dead letter ${id} for good?`) && act('DELETE', path)),
    );
    return place;
  }

  /** Makes the text of a letter: the payloads of its items, or its bytes when it has no items. */
  function textOfLetter({ items = [], bytes_base64: base64 = '', bytes_gone: gone }) {
    if (gone !== undefined) return gone;
    const decoded = (text) =>
      new TextDecoder().decode(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)));
    const payloads = items.map(
      ({ type, item_header: header, payload, payload_base64: binary, payload_bytes: size }) =>
        `${type} ${header}\n${payload ?? (binary === undefined ? `${whole(size)} bytes` : decoded(binary))}`,
    );
    const text = items.length > 0 ? payloads.join('\n\n') : decoded(base64);
    const shown = text.slice(0, PREVIEW_CHARS_MAX).replaceAll(/[^\P{C}\n\t]/gu, '·');
    return text.length > PREVIEW_CHARS_MAX ? `${shown}… (${whole(text.length)} characters)` : shown;
  }

  /** Makes the button that shows what a letter holds, in a row below the letter's. */
  function previewButton(id) {
    let line;
    const made = button('Preview', async () => {
      const isShown = line?.isConnected;
      line?.remove();
      made.setAttribute('aria-expanded', `${!isShown}`);
      if (isShown) return;
      const text = el('pre', { tabindex: '0', role: 'region', 'aria-label': `dead letter ${id}` }, 'asking');
      line = el('tr', { class: 'preview' }, el('td', { colspan: '7' }, text));
      const own = made.closest('tr');
      line.dataset.group = own.dataset.group;
      own.after(line);
      try {
        text.textContent = textOfLetter((await ask(`/v1/dead-letters/${id}`)).json);
      } catch (error) {
        tell(text, error);
      }
    });
    made.setAttribute('aria-expanded', 'false');
    return made;
  }

  const list = pagedList(section, {
    clear: () => {
      groups = new Map();
      letterRows.replaceChildren();
    },
    add: (letters) => {
      for (const { id, reason, filedAt, projectId = NO_PROJECT, type = '–', bytes: size } of letters) {
        const name = JSON.stringify([reason, projectId]);
        // The letters come in the order of their filing, so the last one is the newest.
        groups.set(name, { reason, projectId, count: (groups.get(name)?.count ?? 0) + 1, newest: filedAt });
        const buttons = el('span', {}, previewButton(id), ...(isViewer() ? [] : [letterButtons(id)]));
        const line = row([id, projectId, type, bytes(size), moment(filedAt), buttons, reason]);
        line.dataset.group = name;
        letterRows.append(line);
      }
      showGroups();
    },
  });

  all.open = address.get('letters') === 'open';
  all.addEventListener('toggle', () => address.set('letters', all.open ? ['open'] : []));
  const start = () => list.start(`/v1/dead-letters?limit=${READ}`);
  return start;
}
