/** So many test files run side by side at most: on two cores eight, because each needs a quarter of a core. */
export const LANES = 8;
