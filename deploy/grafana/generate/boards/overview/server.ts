/** Matches the chosen servers. */
export const SERVER = '{server=~"$server"}'
