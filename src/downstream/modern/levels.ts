/** Log levels from the least to the most severe, as RFC 5424 names them. */
const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']

/** Whether a client that asked for `wanted` gets messages of `level`; one that asked for nothing gets none. */
export function admits(wanted: string | undefined, level: unknown): boolean {
  return (
    wanted !== undefined &&
    levels.includes(wanted) &&
    levels.indexOf(level as string) >= levels.indexOf(wanted)
  )
}

/** Whether a server that sends from `current` on has to be asked for more, to serve `wanted`. */
export function isMoreVerbose(wanted: string, current: string | undefined): boolean {
  if (!levels.includes(wanted)) return false
  return current === undefined || levels.indexOf(wanted) < levels.indexOf(current)
}
