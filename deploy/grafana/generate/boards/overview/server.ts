/** The chosen servers. */
export const SERVER = '{server=~"$server"}'
