/**
 * Removes a member of what is under way, in the order in which it began. A list, not a Set or a
 * Map: V8 gives those a new table every few members, and each old table points to the next. Once
 * one of them is in the old space, all later ones, and whatever they held, outlive every young
 * collection. For up to some hundreds of members: removal searches from the front.
 *
 * @returns whether it was there
 */
export function remove<T>(underWay: T[], member: T): boolean {
  const at = underWay.indexOf(member);
  if (at >= 0) underWay.splice(at, 1);
  return at >= 0;
}
