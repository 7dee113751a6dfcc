/** Dead letters on ingest's page: counts by reason, and each with buttons that replay and purge it. */
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
  /** Entries of one answer. The counts by reason are those of the letters that are read. */
  const READ = 1000;
  const section = $('dead-letters');
  const letterRows = section.querySelector('tbody');
  const all = section.querySelector('details');
  let reasons = new Map();
  function showReasons() {
    const lines = [...reasons].sort(([, one], [, other]) => other.count - one.count);
    const cells = lines.map(([reason, { count, newest }]) => [reason, whole(count), moment(newest)]);
    const shown = panel('By reason', ['reason', 'count', 'newest (UTC)'], cells);
    $('reasons').replaceChildren(...shown.querySelectorAll('table'));
    all.hidden = cells.length === 0;
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
  const list = pagedList(section, {
    clear: () => {
      reasons = new Map();
      letterRows.replaceChildren();
      showReasons();
    },
    add: (letters) => {
      for (const { id, reason, filedAt, projectId = '–', type = '–', bytes: size } of letters) {
        // The letters come in the order of their filing, so the last one is the newest.
        reasons.set(reason, { count: (reasons.get(reason)?.count ?? 0) + 1, newest: filedAt });
        const buttons = isViewer() ? '' : letterButtons(id);
        letterRows.append(row([id, projectId, type, bytes(size), moment(filedAt), buttons, reason]));
      }
      showReasons();
    },
  });

  all.open = address.get('letters') === 'open';
  all.addEventListener('toggle', () => address.set('letters', all.open ? ['open'] : []));
  return () => list.start(`/v1/dead-letters?limit=${READ}`);
}
