/**
 * Removes a member from `underWay`, a list in the order in which the members began. The search from
 * the front is fast for up to some hundreds of members. A Set or a Map would be worse: V8 gives
 * them a new table every few members, and each old table points to the next. Once one such table is
 * in V8's old space, young collections free none of the later tables, nor what is in them.
 *
 * @returns whether the member was in the list
 */
export function remove<T>(underWay: T[], member: T): boolean {
  const at = underWay.indexOf(member);
  if (at >= 0) underWay.splice(at, 1);
  return at >= 0;
}
