/**
 * Forms and buttons of one project on ingest's page. Each change sends the revision that the page
 * shows (If-Match), so that two tabs cannot overwrite each other's changes. page.ts puts
 * KNOWN_NAMES, the names of filters and plans, before this script.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function editing({ el, panel, copy }) {
  const DAY_SEC = 86_400;
  const OVERLAPS = [
    ['at once', ''],
    ['after a day', DAY_SEC],
    ['after 30 days', 30 * DAY_SEC],
  ];

  /** Seconds that a test event may take until it is stored. */
  const TEST_WAIT_SEC = 10;

  /** Lines that set up an SDK, by the name of the SDK. */
  const SNIPPETS = {
    Browser: (dsn) => `import * as Sentry from '@sentry/browser';\nSentry.init({ dsn: '${dsn}' });`,
    Node: (dsn) => `import * as Sentry from '@sentry/node';\nSentry.init({ dsn: '${dsn}' });`,
    Python: (dsn) => `import sentry_sdk\nsentry_sdk.init(dsn="${dsn}")`,
    PHP: (dsn) => `\\Sentry\\init(['dsn' => '${dsn}']);`,
    Go: (dsn) => `err := sentry.Init(sentry.ClientOptions{Dsn: "${dsn}"})`,
    Java: (dsn) => `Sentry.init(options -> options.setDsn("${dsn}"));`,
  };

  const button = (text, onClick) => {
    const made = el('button', { type: 'button' }, text);
    made.addEventListener('click', onClick);
    return made;
  };
  const labelled = (text, field) => el('label', {}, `${text} `, field);
  const select = (name, options, chosen) =>
    el(
      'select',
      { name },
      ...options.map(([text, value]) =>
        el('option', { value: `${value}`, ...(value === chosen && { selected: '' }) }, text),
      ),
    );
  const checkbox = (name, value, isChecked) =>
    el('input', { type: 'checkbox', name, value, ...(isChecked && { checked: '' }) });
  const number = (name, value, min) =>
    el('input', { type: 'number', name, min: `${min}`, value: value ?? '', placeholder: 'none' });

  /**
   * Makes a panel with a form. `onSubmit` gets the form's fields. Each field and the button have a
   * place, by which the page finds them again when it has drawn the project anew.
   */
  function form(title, fields, { submit, onSubmit }) {
    const made = el('form', { 'aria-label': title }, ...fields, el('button', {}, submit));
    for (const { dataset, name, value, type } of made.elements)
      dataset.place = [title, name, type === 'checkbox' ? value : ''].join('/');
    made.addEventListener('submit', (event) => {
      event.preventDefault();
      onSubmit(made.elements);
    });
    return el('section', { class: 'panel' }, el('h2', {}, title), made);
  }

  const words = (text) =>
    text
      .split(/[\s,]+/)
      .map((word) => word.trim())
      .filter(Boolean);
  const figure = ({ value }) => (value === '' ? null : Number(value));

  function settingsForm(project, change) {
    const {
      name = '',
      tags = [],
      plan,
      rateLimit,
      quota,
      overage,
      enabled,
      filters,
      allowedOrigins,
    } = project;
    const fields = [
      labelled('Name', el('input', { name: 'name', maxlength: '100', value: name })),
      labelled('Tags', el('input', { name: 'tags', value: tags.join(', ') })),
      labelled(
        'Plan',
        select(
          'plan',
          KNOWN_NAMES.plans.map((one) => [one, one]),
          plan,
        ),
      ),
      labelled('Limit a minute', number('rateLimit', rateLimit, 1)),
      labelled('Quota a month', number('quota', quota, 0)),
      labelled('accept beyond the quota', checkbox('overage', 'yes', overage)),
      el(
        'fieldset',
        {},
        el('legend', {}, 'Filters'),
        ...KNOWN_NAMES.filters.map((one) => labelled(one, checkbox('filters', one, filters.includes(one)))),
      ),
      labelled(
        'Allowed origins',
        el('input', { name: 'origins', value: allowedOrigins.join(', '), placeholder: 'all' }),
      ),
      labelled('enabled', checkbox('enabled', 'yes', enabled)),
    ];
    const onSubmit = (of) =>
      change('PATCH', '', {
        name: of.name.value.trim() || null,
        tags: words(of.tags.value),
        plan: of.plan.value,
        rateLimit: figure(of.rateLimit),
        quota: figure(of.quota),
        overage: of.overage.checked,
        filters: [...of.filters].filter(({ checked }) => checked).map(({ value }) => value),
        allowedOrigins: words(of.origins.value),
        enabled: of.enabled.checked,
      });
    return form('Change it', fields, { submit: 'Save', onSubmit });
  }

  function keyForm(change) {
    const fields = [
      labelled('Label', el('input', { name: 'label', maxlength: '100' })),
      labelled('Expires', el('input', { name: 'expires', type: 'date' })),
      labelled('Limit a minute', number('rateLimit', undefined, 1)),
    ];
    const onSubmit = ({ label, expires, rateLimit }) =>
      change('POST', '/keys', {
        ...(label.value && { label: label.value }),
        ...(expires.value && { expires: `${expires.value}T00:00:00Z` }),
        ...(rateLimit.value && { rateLimit: Number(rateLimit.value) }),
      });
    return form('Add a key', fields, { submit: 'Add', onSubmit });
  }

  const rotateForm = (change) =>
    form('Replace the key', [labelled('The keys before end', select('overlap', OVERLAPS, ''))], {
      submit: 'Replace',
      onSubmit: ({ overlap }) =>
        change('POST', '/rotate-key', overlap.value === '' ? {} : { overlap: Number(overlap.value) }),
    });

  const deleteForm = ({ id }, change) =>
    form(
      'Delete it',
      [
        labelled(
          `Type ${id}: its usage goes, what it sent stays`,
          el('input', { name: 'id', required: '', pattern: id }),
        ),
      ],
      {
        submit: 'Delete',
        onSubmit: ({ id: typed }) => typed.value === id && change('DELETE', ''),
      },
    );

  function keyButtons({ id, enabled }, change) {
    const named = (text, place, onClick) => {
      const made = button(text, onClick);
      made.setAttribute('aria-label', `${text} key ${id}`);
      made.dataset.place = `${id}/${place}`;
      return made;
    };
    return [
      named(enabled ? 'Disable' : 'Enable', 'state', () =>
        change('PATCH', `/keys/${id}`, { enabled: !enabled }),
      ),
      named(
        'Remove',
        'remove',
        () => confirm(`Remove key ${id} for good?`) && change('DELETE', `/keys/${id}`),
      ),
    ];
  }

  /** Makes the lines that set up a chosen SDK, and a button that copies them. */
  function snippet(dsn) {
    const names = Object.keys(SNIPPETS).map((name) => [name, name]);
    const chosen = select('sdk', names, 'Browser');
    const text = el('textarea', { class: 'snippet', readonly: '', rows: '2', 'aria-label': 'set-up' });
    const show = () => {
      text.value = SNIPPETS[chosen.value](dsn);
      copying.textContent = 'Copy the set-up';
    };
    const copying = button('', () => copy(text, copying));
    chosen.addEventListener('change', show);
    show();
    return [labelled('SDK', chosen), text, copying];
  }

  /** Makes the panel of the DSN, which is shown only after a click because it has a key. */
  function dsnPanel({ dsn }) {
    const tools = el('div', { class: 'tools' }, dsn ? '' : 'no key is valid');
    const show = button('Show and copy the DSN', () => {
      const field = el('input', { class: 'dsn', readonly: '', value: dsn, 'aria-label': 'DSN' });
      const copying = button('Copy', () => copy(field, copying));
      tools.replaceChildren(field, copying, ...snippet(dsn));
      copying.click();
      copying.focus();
    });
    if (dsn) tools.append(show);
    return el('section', { class: 'panel' }, el('h2', {}, 'DSN'), tools);
  }

  /** Sentences about a test event, by what became of it. */
  const BECAME = {
    stored: ({ eventId }) => `Event ${eventId} is stored.`,
    waiting: ({ eventId }) =>
      `Event ${eventId} is accepted, and not stored after ${TEST_WAIT_SEC} s: the processor is behind or away.`,
    'dead letter': ({ eventId, letter, reason }) =>
      `Event ${eventId} was accepted and could not be stored. It is dead letter ${letter}: ${reason}.`,
    filtered: ({ reason }) => `The event is not stored: the filter ${reason} took it.`,
    refused: ({ status, reason }) => `The event was refused with ${status}: ${reason}.`,
  };

  /** Makes the panel that sends a test event to a project and says what became of the event. */
  function testPanel(base, { ask, tell }) {
    const said = el('p', { class: 'empty', role: 'status' });
    said.textContent = 'The event counts for limit and quota, and is stored like any other.';
    let isUnderWay = false;
    const send = button('Send a test event', async () => {
      if (isUnderWay) return;
      isUnderWay = true;
      said.className = 'empty';
      said.textContent = 'under way';
      try {
        const path = `${base}/test-event?wait=${TEST_WAIT_SEC}`;
        const { json } = await ask(path, { method: 'POST', body: {} });
        said.textContent = BECAME[json.became](json);
        if (json.became !== 'stored') said.className = 'trouble';
      } catch (error) {
        tell(said, error);
      }
      isUnderWay = false;
    });
    return el('section', { class: 'panel' }, el('h2', {}, 'Test'), el('div', { class: 'tools' }, send), said);
  }

  /** Makes the table of reasons why requests were refused or stored nothing, by frequency. */
  function reasonsPanel({ hours }, whole) {
    const sums = new Map();
    for (const { outcome, reason, key = '', requests } of hours.flatMap(({ reasons = [] }) => reasons)) {
      const name = [outcome, reason, key].join('\n');
      sums.set(name, (sums.get(name) ?? 0) + requests);
    }
    const lines = [...sums].sort(([, one], [, other]) => other - one);
    return panel(
      'Why refused, filtered or empty',
      ['outcome', 'reason', 'key', 'requests'],
      lines.map(([name, requests]) => [...name.split('\n'), whole(requests)]),
    );
  }

  const forms = (project, change) => [
    settingsForm(project, change),
    keyForm(change),
    rotateForm(change),
    deleteForm(project, change),
  ];
  return { forms, keyButtons, dsnPanel, testPanel, reasonsPanel, button };
}
