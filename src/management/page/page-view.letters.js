/**
 * Dead letters on ingest's page: counts by reason and project, and each letter with its content and
 * buttons that replay and purge it.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined behind this file, calls it.
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
  /** Entries of one answer. The counts are those of the letters that are read. */
  const READ = 1000;
  /** Characters of a letter that are shown. */
  const PREVIEW_CHARS_MAX = 4000;
  const section = $('dead-letters');
  const letterRows = section.querySelector('tbody');
  const all = section.querySelector('details');
  /** Letters with the same reason and project, by both. */
  let groups = new Map();
  /** Name of the group whose letters alone are shown; undefined when all are. */
  let chosen;

  function showGroups() {
    const lines = [...groups].sort(([, one], [, other]) => other.count - one.count);
    const cells = lines.map(([name, { reason, projectId, count, newest }]) => {
      const choose = button('Show', () => {
        chosen = chosen === name ? undefined : name;
        all.open = true;
        showChosen();
      });
      choose.setAttribute('aria-label', `Show the letters of project ${projectId}: ${reason}`);
      choose.dataset.group = name;
      return [reason, projectId, whole(count), moment(newest), choose];
    });
    const shown = panel('By reason', ['reason', 'project', 'count', 'newest (UTC)', 'letters'], cells);
    $('reasons').replaceChildren(...shown.querySelectorAll('table'));
    all.hidden = cells.length === 0;
    showChosen();
  }

  function showChosen() {
    if (!groups.has(chosen)) chosen = undefined;
    for (const one of $('reasons').querySelectorAll('button'))
      one.setAttribute('aria-pressed', `${one.dataset.group === chosen}`);
    for (const line of letterRows.children)
      line.hidden = chosen !== undefined && line.dataset.group !== chosen;
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
      for (const { id, reason, filedAt, projectId = '–', type = '–', bytes: size } of letters) {
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
  return () => list.start(`/v1/dead-letters?limit=${READ}`);
}
