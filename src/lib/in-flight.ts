/**
 * What is under way, in the order in which it began: a list, and not a Set or a Map, for what comes and goes all the time. V8 gives those a new
 * table every few members, and each table that was left points to the one after it; once one of them is in the old space, all that follow,
 * and whatever they held, outlive every young collection. For up to some hundreds: removal looks from the front.
 *
 * @returns whether it was there
 */
export function remove<T>(underWay: T[], member: T): boolean {
  const at = underWay.indexOf(member);
  if (at >= 0) underWay.splice(at, 1);
  return at >= 0;
}
