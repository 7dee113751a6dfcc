/**
 * Removes a member from `underWay`, a list in the order in which the members began. Removal
 * searches from the front, which is fast for up to some hundreds of members. A Set or a Map would
 * be worse: V8 gives them a new table every few members, and each old table points to the next.
 * Once one of these tables is in V8's old space, all later tables and everything in them outlive
 * every young collection.
 *
 * @returns whether the member was in the list
 */
export function remove<T>(underWay: T[], member: T): boolean {
  const at = underWay.indexOf(member);
  if (at >= 0) underWay.splice(at, 1);
  return at >= 0;
}
