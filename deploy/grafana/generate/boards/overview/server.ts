/** The servers that are chosen. */
export const SERVER = '{server=~"$server"}'
