/** Refused requests on ingest's page, as they come, while the reader watches. */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function refusalTail({ $, el, whole, bytes, row, send, tell, address }) {
  /** Pause before the next try when the answer has ended. */
  const AGAIN_MS = 5000;
  const SHOWN_MAX = 200;
  const section = $('refusals');
  const [rows, note, button] = ['tbody', '.empty', 'button'].map((name) => section.querySelector(name));
  /** Controller that ends the present watch; undefined while the reader does not watch. */
  let watch;

  function refusalRow({ at, project_id: id, outcome, reason = '–', key, bytes: size, missed }) {
    const time = at.slice(0, 19).replace('T', ' ');
    const project = el('a', { href: `#project=${encodeURIComponent(id)}&refusals=shown` }, id);
    const more = missed ? ` (and ${whole(missed)} before that were not shown)` : '';
    return row([time, project, outcome, `${reason}${more}`, key, bytes(size)]);
  }

  function show(refusals) {
    rows.prepend(...refusals.slice(-SHOWN_MAX).map(refusalRow).reverse());
    for (const old of [...rows.children].slice(SHOWN_MAX)) old.remove();
    note.className = 'empty';
    note.textContent = rows.children.length === 0 ? 'nothing is refused so far' : '';
  }

  /** Reads refusals, one JSON object a line, until the answer ends. */
  async function read(signal) {
    const { body } = await send('/v1/tail?refused=true', { signal });
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ; ) {
      const { done, value } = await reader.read();
      if (done) throw new Error('The server has ended its answer.');
      const lines = `${rest}${value}`.split('\n');
      rest = lines.pop();
      show(lines.filter(Boolean).map((line) => JSON.parse(line)));
    }
  }

  async function readOn({ signal }) {
    while (!signal.aborted) {
      await read(signal).catch((error) => signal.aborted || tell(note, error));
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** Starts or ends the watch, as the address says. */
  function follow() {
    const isWanted = address.get('refusals') === 'shown';
    if (isWanted === (watch !== undefined)) return;
    button.setAttribute('aria-pressed', `${isWanted}`);
    watch?.abort();
    watch = isWanted ? new AbortController() : undefined;
    if (watch) readOn(watch);
  }

  button.addEventListener('click', () => {
    address.set('refusals', watch ? [] : ['shown']);
    follow();
  });
  return follow;
}
