/** Heartbeat tokens on ingest's page: a list, and buttons that make and delete a token. */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function heartbeatTokens({ $, el, row, keyCell, moment, ask, pagedList, tell, button, isViewer }) {
  const section = $('heartbeats');
  const rows = section.querySelector('tbody');
  const note = section.querySelector('.empty');
  const tokens = pagedList(section, {
    clear: () => rows.replaceChildren(),
    add: (page) => {
      $('new-heartbeat').hidden = isViewer();
      rows.append(...page.map(tokenRow));
    },
  });
  const list = () => tokens.start('/v1/heartbeats?limit=50');

  async function change(method, path, body) {
    try {
      await ask(path, { method, body });
      await list();
      $('new-heartbeat').focus();
    } catch (error) {
      tell(note, error);
    }
  }

  /** Makes the row of a token. The URL contains the token, so it is shown only after a click. */
  function tokenRow({ token, url, createdAt }) {
    const name = `${token.slice(0, 6)}…`;
    const remove = button('Delete', () => {
      if (confirm(`Delete heartbeat ${name} for good?`)) change('DELETE', `/v1/heartbeats/${token}`);
    });
    remove.setAttribute('aria-label', `Delete heartbeat ${name}`);
    return row([el('code', {}, name), moment(createdAt), keyCell(url), isViewer() ? '' : remove]);
  }

  $('new-heartbeat').addEventListener('click', () => change('POST', '/v1/heartbeats', {}));
  return list;
}
