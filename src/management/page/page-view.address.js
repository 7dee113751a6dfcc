/**
 * The page's address: its fragment names open projects, the search and other fields, as in
 * `#project=1&project=2&search=shop`. The history of the browser also keeps how far the page is
 * scrolled and how many projects are listed. So a refresh and the back button find the same place.
 */
// biome-ignore lint/correctness/noUnusedVariables: page-view.manage.js, joined after this file, calls it.
function pageAddress() {
  const SCROLLED_MS = 100;
  const fields = () => new URLSearchParams(location.hash.slice(1));
  /** True while the page is drawn anew, when the browser scrolls by itself. */
  let isMoving = false;
  let scrolled;

  function keep(more) {
    history.replaceState({ ...history.state, ...more }, '');
  }

  /**
   * Sets the values of a field.
   * @param isStep whether the back button undoes this change
   */
  function set(name, values, { isStep = false } = {}) {
    const next = fields();
    next.delete(name);
    for (const value of values) if (value !== '') next.append(name, value);
    if (`${next}` === `${fields()}`) return;
    const url = `${next}` === '' ? location.pathname : `#${next}`;
    keep({ top: scrollY });
    if (isStep) history.pushState(history.state, '', url);
    else history.replaceState(history.state, '', url);
  }

  /**
   * Draws the page for its address with `draw`, and then scrolls to the place where the reader left
   * it. An address that comes from a link has no such place; the page then scrolls to the project
   * that the address names.
   */
  async function move(draw) {
    history.scrollRestoration = 'manual';
    const { top } = history.state ?? {};
    isMoving = true;
    await draw();
    if (top !== undefined) scrollTo(0, top);
    else document.querySelector('tr.details')?.previousElementSibling.scrollIntoView();
    isMoving = false;
  }

  addEventListener('scroll', () => {
    clearTimeout(scrolled);
    scrolled = setTimeout(() => !isMoving && keep({ top: scrollY }), SCROLLED_MS);
  });
  return {
    all: (name) => fields().getAll(name),
    get: (name) => fields().get(name) ?? '',
    rows: () => history.state?.rows,
    set,
    keep,
    move,
  };
}
