/** So many test files run side by side at most: on two cores six, because most of them wait most of the time. */
export const LANES = 6;
